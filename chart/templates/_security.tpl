{{- /* Made from src/hostler/install/manifests.py by `make chart`: edit that. */}}
{{- define "hostler.podSecurity" }}
runAsNonRoot: true
{{- if not .Values.openshift }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- define "hostler.security" }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
{{- end }}
