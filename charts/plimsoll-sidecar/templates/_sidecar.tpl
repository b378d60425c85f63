{{/* The container, its volumes and its rules. Each takes the root of the chart that includes it. The pod needs
`securityContext.fsGroup`: by that group the proxy may open the sockets, and the sidecar read its certificates. */}}

{{/* An item of `containers`, or with `native` of `initContainers`. RLS listens on 127.0.0.1:7420, HTTP on 127.0.0.1:7421:
the containers of a pod share loopback. */}}
{{- define "plimsoll.sidecar" -}}
{{- $values := index .Values "plimsoll-sidecar" -}}
{{- $chart := index .Subcharts "plimsoll-sidecar" -}}
- name: plimsoll
  image: {{ printf "%s:%s" $values.image.repository ($values.image.tag | default $chart.Chart.AppVersion) | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  {{- if $values.native }}
  restartPolicy: Always
  {{- end }}
  command: [plimsoll]
  args:
    - sidecar
    {{- if not $values.aggregators }}
    {{- fail "plimsoll-sidecar.aggregators: list the addresses of the zone's aggregators, such as https://plimsoll-eu-1a.plimsoll:7410" }}
    {{- end }}
    - --aggregator={{ join "," $values.aggregators }}
    - --zone={{ $values.zone }}
    - --service={{ $values.service }}
    - --name=$(POD_NAME)
    {{- if include "plimsoll.sidecar.rulesName" . }}
    - --rules=/etc/plimsoll/rules.yaml
    {{- end }}
    - --canary-by={{ $values.canaryBy }}
    {{- with $values.quotaStore.url }}
    - --quota-store={{ . }}
    {{- if $values.quotaStore.secret }}
    - --quota-password-file=/etc/plimsoll-quota/password
    {{- if regexMatch "^(plimsolls|rediss)[:+]" . }}
    - --quota-ca=/etc/plimsoll-quota/ca.crt
    {{- end }}
    {{- end }}
    {{- end }}
    - --sockets=/run/plimsoll
    # The default is loopback, which neither the probes of the kubelet nor Prometheus can reach.
    - --admin=0.0.0.0:7422
    {{- if $values.insecure }}
    - --insecure
    {{- else }}
    {{- $_ := required "plimsoll-sidecar.certificates.secret: name a Secret with tls.crt, tls.key and ca.crt; or, for a trial alone, set insecure: true" $values.certificates.secret }}
    - --certs=/etc/plimsoll-certs
    {{- end }}
    {{- if $values.tokens.secret }}
    - --tokens=/etc/plimsoll-tokens/tokens
    {{- end }}
    - --log={{ $values.log }}
    - --log-format=json
  env:
    - name: POD_NAME
      valueFrom: { fieldRef: { fieldPath: metadata.name } }
  ports:
    - { name: plimsoll-admin, containerPort: 7422 }
  {{- $scheme := ternary "HTTP" "HTTPS" $values.insecure }}
  # Neither depends on an aggregator: its loss must not restart the pods of a service.
  livenessProbe:
    httpGet: { path: /healthz, port: plimsoll-admin, scheme: {{ $scheme }} }
    periodSeconds: 10
    timeoutSeconds: 2
  readinessProbe:
    httpGet: { path: /readyz, port: plimsoll-admin, scheme: {{ $scheme }} }
    periodSeconds: 5
    timeoutSeconds: 2
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "plimsoll.sidecar.mounts" . | nindent 4 }}
    # Directories, because Kubernetes never updates a file that is mounted by subPath.
    {{- if include "plimsoll.sidecar.rulesName" . }}
    - { name: plimsoll-rules, mountPath: /etc/plimsoll, readOnly: true }
    {{- end }}
    {{- if not $values.insecure }}
    - { name: plimsoll-certs, mountPath: /etc/plimsoll-certs, readOnly: true }
    {{- end }}
    {{- if $values.tokens.secret }}
    - { name: plimsoll-tokens, mountPath: /etc/plimsoll-tokens, readOnly: true }
    {{- end }}
    {{- if and $values.quotaStore.url $values.quotaStore.secret }}
    - { name: plimsoll-quota, mountPath: /etc/plimsoll-quota, readOnly: true }
    {{- end }}
{{- end }}

{{/* Items of `volumeMounts` of the proxy: the sockets rls.sock and http.sock in /run/plimsoll. */}}
{{- define "plimsoll.sidecar.mounts" -}}
- { name: plimsoll-sockets, mountPath: /run/plimsoll }
{{- end }}

{{/* Items of `volumes` of the pod. */}}
{{- define "plimsoll.sidecar.volumes" -}}
{{- $values := index .Values "plimsoll-sidecar" -}}
- name: plimsoll-sockets
  emptyDir: { sizeLimit: 1Mi }
{{- with include "plimsoll.sidecar.rulesName" . }}
- name: plimsoll-rules
  configMap:
    name: {{ . }}
{{- end }}
{{- if not $values.insecure }}
- name: plimsoll-certs
  secret:
    secretName: {{ $values.certificates.secret }}
    # For the group of the pod, fsGroup, and for no other.
    defaultMode: 0440
{{- end }}
{{- with $values.tokens.secret }}
- name: plimsoll-tokens
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if and $values.quotaStore.url $values.quotaStore.secret }}
- name: plimsoll-quota
  secret:
    secretName: {{ $values.quotaStore.secret }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* A ConfigMap with the rules of the values. The sidecar reloads it when it changes. */}}
{{- define "plimsoll.sidecar.rules" -}}
{{- $values := index .Values "plimsoll-sidecar" -}}
{{- if and $values.rules (not $values.existingRules) }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "plimsoll.sidecar.rulesName" . }}
data:
  rules.yaml: |
    {{- toYaml $values.rules | nindent 4 }}
{{- end }}
{{- end }}

{{/* The name of the ConfigMap with the rules; empty without rules. */}}
{{- define "plimsoll.sidecar.rulesName" -}}
{{- $values := index .Values "plimsoll-sidecar" -}}
{{- if $values.existingRules -}}
{{- $values.existingRules -}}
{{- else if $values.rules -}}
{{- printf "%s-plimsoll-rules" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}
