{{/* Several controllers on one store. Without a store there is one, which these names leave as it is. */}}

{{/* The headless Service that gives each controller a name of its own. */}}
{{- define "plimsoll.members" -}}
{{- include "plimsoll.controller" . }}-members
{{- end }}

{{/* Takes a dict of `root` and the number of the `member`, or `*`. */}}
{{- define "plimsoll.memberHost" -}}
{{- $pod := ternary "*" (printf "%s-%v" (include "plimsoll.controller" .root) .member) (eq (toString .member) "*") -}}
{{- printf "%s.%s.%s" $pod (include "plimsoll.members" .root) .root.Release.Namespace -}}
{{- end }}

{{/* The addresses of all controllers, for aggregators. */}}
{{- define "plimsoll.controllers" -}}
{{- if .Values.controller.store.endpoints -}}
{{- $urls := list -}}
{{- range $member := until (int .Values.controller.replicas) -}}
{{- $urls = append $urls (printf "%s://%s:7400" (include "plimsoll.scheme" $) (include "plimsoll.memberHost" (dict "root" $ "member" $member))) -}}
{{- end -}}
{{- join "," $urls -}}
{{- else -}}
{{- include "plimsoll.scheme" . }}://{{ include "plimsoll.controller" . }}:7400
{{- end -}}
{{- end }}

{{/* The flags of a controller with a store; empty without one. */}}
{{- define "plimsoll.store" -}}
{{- with .Values.controller.store -}}
{{- if .endpoints -}}
{{- if not (or .tls.secret $.Values.insecure) -}}
{{- fail "controller.store.tls.secret: name a Secret with ca.crt, tls.crt and tls.key for the connections to etcd; or, for a trial alone, set insecure: true, which is plaintext" -}}
{{- end -}}
- --store={{ ternary "etcds" "etcd" (ne .tls.secret "") }}://{{ join "," .endpoints }}/{{ .prefix }}
{{- if .tls.secret }}
- --store-ca=/etc/plimsoll-store-certs/ca.crt
- --store-cert=/etc/plimsoll-store-certs/tls.crt
- --store-key=/etc/plimsoll-store-certs/tls.key
{{- end }}
{{- if .credentials.secret }}
- --store-password-file=/etc/plimsoll-store-credentials/password
{{- end }}
# The name by which aggregators and operators reach this member, which stays when the pod moves.
- --advertise={{ printf "$(POD_NAME).%s.%s" (include "plimsoll.members" $) $.Release.Namespace }}
{{- else if gt (int $.Values.controller.replicas) 1 -}}
{{- fail (printf "controller.replicas is %d, and several controllers need a store that elects one of them: set controller.store.endpoints to the client ports of an etcd cluster" (int $.Values.controller.replicas)) -}}
{{- end -}}
{{- end -}}
{{- end }}
