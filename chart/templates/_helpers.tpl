{{- /* Also of Services, which have letters, digits and dashes and begin with a letter; a release may have dots. */}}
{{- define "hostler.name" -}}
{{- $release := .Release.Name | replace "." "-" }}
{{- $chart := .Values.nameOverride | default "hostler" }}
{{- $name := contains $chart $release | ternary $release (printf "%s-%s" $release $chart) }}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "%s-%s" $chart $release }}{{ end }}
{{- with .Values.fullnameOverride }}{{ $name = . }}{{ end }}
{{- regexReplaceAll "-+$" (trunc 50 $name) "" }}
{{- end }}

{{- define "hostler.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "hostler" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "hostler.labels" -}}
{{ include "hostler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: hostler
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hostler.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "hostler.name" .) }}
{{- end }}

{{- define "hostler.vcenter" -}}
{{- if or .Values.vcenter.host .Values.vcenter.existingSecret .Values.vcenter.vcentersSecret }}yes{{ end }}
{{- end }}

{{- /* The Secret with the login, ours or theirs; empty where only a vcenters file is given. */}}
{{- define "hostler.vcenterSecret" -}}
{{- if .Values.vcenter.existingSecret }}{{ .Values.vcenter.existingSecret }}
{{- else if .Values.vcenter.host }}{{ include "hostler.name" . }}-vcenter{{ end }}
{{- end }}

{{- /* The capabilities that are on, as a JSON list in a fixed order. Maintenance needs a vCenter. */}}
{{- define "hostler.named" -}}
{{- $on := list }}
{{- range $name, $wanted := .Values.capabilities }}
{{- if and $wanted (or (ne $name "maintenance") (include "hostler.vcenter" $)) }}
{{- $on = append $on $name }}
{{- end }}
{{- end }}
{{- toJson $on }}
{{- end }}

{{- /* Not empty: the capability is on. */}}
{{- define "hostler.maintenance" -}}
{{- if has "maintenance" (include "hostler.named" . | fromJsonArray) }}yes{{ end }}
{{- end }}

{{- define "hostler.reclaim" -}}
{{- if has "reclaim" (include "hostler.named" . | fromJsonArray) }}yes{{ end }}
{{- end }}

{{- /* Not in a dry run: it keeps no certificate, so the API server would refuse every write of Metal3's kinds. */}}
{{- define "hostler.webhooks" -}}
{{- if and (has "metal" (include "hostler.named" . | fromJsonArray)) (not .Values.dryRun) (eq (get (.Values.settings | default dict) "HOSTLER_METAL_WEBHOOKS" | toString) "true") }}yes{{ end }}
{{- end }}

{{- /* How hosts reach the step API: as said, or by the name of its ingress or route. */}}
{{- define "hostler.hubURL" -}}
{{- with .Values.hub }}
{{- if .url }}{{ .url }}
{{- else if .ingress.enabled }}https://{{ .ingress.host }}
{{- else if .route.enabled }}https://{{ .route.host }}{{ end }}
{{- end }}
{{- end }}

{{- define "hostler.leaseName" -}}
{{- get (.Values.settings | default dict) "HOSTLER_LEASE_NAME" | default "hostler" }}
{{- end }}

{{- /* Not empty: leader election is off. Two replicas would then both act. */}}
{{- define "hostler.alone" -}}
{{- if eq (get (.Values.settings | default dict) "HOSTLER_LEADER_ELECTION" | toString) "false" }}
{{- if gt (int .Values.replicas) 1 }}
{{- fail (printf "With settings.HOSTLER_LEADER_ELECTION=false each of the %d replicas would act at once: set replicas=1, or leave leader election on." (int .Values.replicas)) }}
{{- end }}yes
{{- end }}
{{- end }}

{{- define "hostler.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Not empty: something that is on asks a vCenter. */}}
{{- define "hostler.asks" -}}
{{- $on := include "hostler.named" . | fromJsonArray }}
{{- if and (include "hostler.vcenter" .) (or (has "maintenance" $on) (has "platform" $on)) }}yes{{ end }}
{{- end }}

{{- /* As JSON writes a number: 2592000, and not 2.592e+06. */}}
{{- define "hostler.settings" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ ternary (toJson $value) (toString $value) (kindIs "float64" $value) | quote }}
{{- end }}
{{- end }}
