{{- /* Made from src/hostler/install/manifests.py by `make chart`: edit that. */}}
{{- define "hostler.label" }}{{ get (.Values.settings | default dict) "GPU_NODE_LABEL" | default "intel.feature.node.kubernetes.io/gpu=true" }}{{ end }}
{{- define "hostler.plainLabel" }}{{ if regexMatch "^([a-z0-9.-]+/)?[A-Za-z0-9._-]+(=[A-Za-z0-9._-]*)?$" (include "hostler.label" .) }}yes{{ end }}{{ end }}
{{- define "hostler.affinity" }}
{{- if and (has "maintenance" (include "hostler.named" . | fromJsonArray)) (include "hostler.plainLabel" .) }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: {{ (splitn "=" 2 (include "hostler.label" .))._0 | quote }}
            {{- if contains "=" (include "hostler.label" .) }}
            operator: NotIn
            values:
              - {{ (splitn "=" 2 (include "hostler.label" .))._1 | quote }}
            {{- end }}
            {{- if not (contains "=" (include "hostler.label" .)) }}
            operator: DoesNotExist
            {{- end }}
{{- end }}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "hostler.selector" . | nindent 12 }}
{{- end }}
