{{/* Certificates and tokens of both tiers, or plaintext with `insecure`. */}}

{{- define "plimsoll.scheme" -}}
{{ ternary "http" "https" .Values.insecure }}
{{- end }}

{{/* The Secret with the certificate of one process. Takes a dict of `root`, the `name` of its objects, and its own
`certificates`. */}}
{{- define "plimsoll.secret" -}}
{{- $own := (.certificates | default dict).secret -}}
{{- if $own -}}
{{- $own -}}
{{- else if .root.Values.certManager.issuerRef.name -}}
{{- printf "%s-tls" .name -}}
{{- else -}}
{{- fail (printf "%s has no certificate. Choose one of three: certManager.issuerRef.name, and cert-manager issues all certificates; controller.certificates.secret and certificates.secret of every zone, and quota.certificates.secret with quota.enabled, which name existing Secrets with tls.crt, tls.key and ca.crt; or, for a trial alone, insecure: true, which is plaintext without authentication" .name) -}}
{{- end -}}
{{- end }}

{{/* Takes the dict of `plimsoll.secret`, which fails before the tokens do. */}}
{{- define "plimsoll.trustArgs" -}}
{{- if .root.Values.insecure }}
- --insecure
{{- else }}
{{- $_ := include "plimsoll.secret" . }}
- --certs=/etc/plimsoll-certs
{{- end }}
{{- if .root.Values.tokens.secret }}
- --tokens=/etc/plimsoll-tokens/tokens
{{- else if .root.Values.insecure }}
# Commands by `kubectl exec`, in the pod itself.
- --admin-open-on-loopback
{{- else }}
{{- fail "tokens.secret: name a Secret whose key `tokens` is a file made by `plimsoll tokens add`; or, for a trial alone, set insecure: true" }}
{{- end }}
{{- if .root.Values.tokens.neededForMetrics }}
- --metrics-need-token
{{- end }}
{{- end }}

{{/* Directories, because Kubernetes never updates a file that is mounted by subPath: a renewed certificate or token
would not reach the process. */}}
{{- define "plimsoll.trustMounts" -}}
{{- if not .Values.insecure }}
- { name: certs, mountPath: /etc/plimsoll-certs, readOnly: true }
{{- end }}
{{- if .Values.tokens.secret }}
- { name: tokens, mountPath: /etc/plimsoll-tokens, readOnly: true }
{{- end }}
{{- end }}

{{/* Takes the dict of `plimsoll.secret`. The mode lets the group of the pod, fsGroup, read the files, and no other. */}}
{{- define "plimsoll.trustVolumes" -}}
{{- if not .root.Values.insecure }}
- name: certs
  secret:
    secretName: {{ include "plimsoll.secret" . }}
    defaultMode: 0440
{{- end }}
{{- with .root.Values.tokens.secret }}
- name: tokens
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* A Certificate, unless the process has a Secret of its own. Takes the dict of `plimsoll.secret`, the `path` of its
identity, and further `hosts`, if any. */}}
{{- define "plimsoll.certificate" -}}
{{- with .root.Values.certManager }}
{{- if and .issuerRef.name (not (or $.root.Values.insecure ($.certificates | default dict).secret)) }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $.name }}
  labels:
    {{- include "plimsoll.selector" $.root | nindent 4 }}
    {{- include "plimsoll.labels" $.root | nindent 4 }}
spec:
  secretName: {{ include "plimsoll.secret" $ }}
  duration: {{ .duration }}
  renewBefore: {{ .renewBefore }}
  privateKey: { algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always }
  usages: [digital signature, server auth, client auth]
  uris:
    - spiffe://{{ required "trustDomain: set the trust domain of the identities, such as plimsoll.example.org" $.root.Values.trustDomain }}/plimsoll/{{ $.path }}
  # Plimsoll compares the identity above and no host name, but for clients of the quota server. Those, Prometheus and curl
  # compare these; the last one is common to all processes, for `server_name` of a scrape by pod address.
  dnsNames:
    - {{ $.name }}
    - {{ $.name }}.{{ $.root.Release.Namespace }}
    - {{ $.name }}.{{ $.root.Release.Namespace }}.svc
    - {{ include "plimsoll.name" $.root }}
    {{- range $.hosts }}
    - {{ . | quote }}
    {{- end }}
  issuerRef:
    name: {{ .issuerRef.name }}
    kind: {{ .issuerRef.kind }}
    group: {{ .issuerRef.group }}
{{- end }}
{{- end }}
{{- end }}
