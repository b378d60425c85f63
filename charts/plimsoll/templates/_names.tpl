{{/* Names and labels, so that every object of a release is called and found by the same rule. */}}

{{/* What every name begins with: the release, and the chart unless the release is called like it. At most 40 letters,
because up to 22 of a zone's name follow and the whole must fit into 63. */}}
{{- define "plimsoll.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "plimsoll.controller" -}}
{{- include "plimsoll.name" . }}-controller
{{- end }}

{{/* A zone's name may have letters that Kubernetes does not allow in the names of its objects. */}}
{{- define "plimsoll.zone" -}}
{{- regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trunc 22 | trimPrefix "-" | trimSuffix "-" -}}
{{- end }}

{{/* Takes a dict of `root` and `zone`. */}}
{{- define "plimsoll.aggregator" -}}
{{- printf "%s-%s" (include "plimsoll.name" .root) (include "plimsoll.zone" .zone) -}}
{{- end }}

{{- define "plimsoll.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What never changes in the life of a release. */}}
{{- define "plimsoll.selector" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "plimsoll.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "plimsoll.policy" -}}
{{ .Values.controller.policy.existingConfigMap | default (printf "%s-policy" (include "plimsoll.name" .)) }}
{{- end }}

{{- define "plimsoll.state" -}}
{{ .Values.controller.state.existingClaim | default (printf "%s-state" (include "plimsoll.name" .)) }}
{{- end }}

{{/* Takes a dict of `root` and the admin `port`. */}}
{{- define "plimsoll.scrape" -}}
{{- if .root.Values.scrape }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* Neither probe depends on a tier above: a controller that is away must not get its aggregators restarted. */}}
{{- define "plimsoll.probes" -}}
livenessProbe:
  httpGet: { path: /healthz, port: admin }
  periodSeconds: 10
  timeoutSeconds: 2
readinessProbe:
  httpGet: { path: /readyz, port: admin }
  periodSeconds: 5
  timeoutSeconds: 2
{{- end }}
