{{/* Names and labels of all objects of a release, by the same rules. */}}

{{/* The prefix of every name: the release, and the chart unless the release contains its name. At most 40 letters,
because up to 22 letters of a zone follow and a name has at most 63. */}}
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

{{- define "plimsoll.quota" -}}
{{- include "plimsoll.name" . }}-quota
{{- end }}

{{/* The name of a zone as Kubernetes allows it in names of objects. */}}
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

{{/* Labels that never change in the life of a release. */}}
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
prometheus.io/scheme: {{ include "plimsoll.scheme" .root }}
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* Neither probe depends on a tier above: the loss of the controller must not restart its aggregators. The kubelet
verifies no certificate and needs no token. */}}
{{- define "plimsoll.probes" -}}
livenessProbe:
  httpGet: { path: /healthz, port: admin, scheme: {{ include "plimsoll.scheme" . | upper }} }
  periodSeconds: 10
  timeoutSeconds: 2
readinessProbe:
  httpGet: { path: /readyz, port: admin, scheme: {{ include "plimsoll.scheme" . | upper }} }
  periodSeconds: 5
  timeoutSeconds: 2
{{- end }}
