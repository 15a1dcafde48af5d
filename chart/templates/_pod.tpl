{{- define "hostler.podSecurity" -}}
runAsNonRoot: true
{{- /* On OpenShift the SCC restricted-v2 gives them, from the namespace's range. */}}
{{- if not .Values.openshift }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "hostler.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* The nodes that maintenance may empty. */}}
{{- define "hostler.nodeLabel" -}}
{{- get (.Values.settings | default dict) "GPU_NODE_LABEL" | default "intel.feature.node.kubernetes.io/gpu=true" }}
{{- end }}

{{- /* Not empty: the label is KEY or KEY=VALUE. From any other selector the chart cannot tell where it may run. */}}
{{- define "hostler.plainNodeLabel" -}}
{{- if regexMatch "^([a-z0-9.-]+/)?[A-Za-z0-9._-]+(=[A-Za-z0-9._-]*)?$" (include "hostler.nodeLabel" .) }}yes{{ end }}
{{- end }}

{{- /* Off the nodes that Hostler may empty, so that it never drains itself; and the replicas on different nodes. */}}
{{- define "hostler.ownAffinity" -}}
{{- $label := splitn "=" 2 (include "hostler.nodeLabel" .) }}
{{- if and (include "hostler.maintenance" .) (include "hostler.plainNodeLabel" .) }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: {{ $label._0 | quote }}
            {{- if contains "=" (include "hostler.nodeLabel" .) }}
            operator: NotIn
            values: [{{ $label._1 | quote }}]
            {{- else }}
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

{{- /* The terms of the values file are alternatives, so ours goes into each: else the pod could land on a node that it empties. */}}
{{- define "hostler.affinity" -}}
{{- $own := include "hostler.ownAffinity" . | fromYaml }}
{{- $theirs := deepCopy (.Values.affinity | default dict) }}
{{- if and (include "hostler.maintenance" .) (not (include "hostler.plainNodeLabel" .)) (not $theirs.nodeAffinity) }}
{{- fail (printf "settings.GPU_NODE_LABEL is %q, which is neither KEY nor KEY=VALUE, so the chart cannot tell which nodes Hostler must keep off: it would drain itself. Say where it may run: affinity.nodeAffinity." (include "hostler.nodeLabel" .)) }}
{{- end }}
{{- with $own.nodeAffinity }}
{{- $ours := (first .requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms).matchExpressions }}
{{- with $theirs.nodeAffinity }}{{ with .requiredDuringSchedulingIgnoredDuringExecution }}{{ range .nodeSelectorTerms }}
{{- $_ := set . "matchExpressions" (concat (.matchExpressions | default list) $ours) }}
{{- end }}{{ end }}{{ end }}
{{- end }}
{{- toYaml (mustMergeOverwrite $own $theirs) }}
{{- end }}
