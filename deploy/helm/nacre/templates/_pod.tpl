{{/* What the pods of all components share. */}}

{{/* A flag's value: YAML has made numbers and switches of what was written. */}}
{{- define "nacre.value" -}}
{{- if kindIs "bool" . -}}
{{ ternary "on" "off" . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* - --name=value for each flag; those of `log` are every program's. */}}
{{- define "nacre.flags" -}}
- --log-format={{ .root.Values.log.format }}
- --log-level={{ .root.Values.log.level }}
{{- /* Only the gateway's flags have switches: true or false, where others are on or off. */ -}}
{{- $switches := (include "nacre.programFlags" .root | fromYaml).gateway.switches -}}
{{- range $name, $value := .flags }}
- {{ printf "--%s=%s" $name (ternary (toString $value) (include "nacre.value" $value) (has $name $switches)) | quote }}
{{- end }}
{{- range .pod.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* What TLS between the processes takes, where it is on. */}}
{{- define "nacre.tlsFlags" -}}
{{- if .Values.tls.enabled }}
- --tls-cert=/etc/nacre/tls/tls.crt
- --tls-key=/etc/nacre/tls/tls.key
- --tls-ca=/etc/nacre/tls/ca.crt
- --tls-server-name={{ .Values.tls.serverName }}
{{- end }}
{{- end -}}

{{/* volumeMounts and volumes of a pod: its model, Secrets and ConfigMaps below
/etc/nacre, and the user's. (dict "model" m "secrets" (list (dict "name" n
"secret" s "items" (list key))) "pod" p). */}}
{{- define "nacre.mounts" -}}
{{- include "nacre.modelMount" .model }}
{{- range .secrets }}
- {name: {{ .name }}, mountPath: /etc/nacre/{{ .name }}, readOnly: true}
{{- end }}
{{- with .pod.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- define "nacre.volumeMounts" -}}
{{- with include "nacre.mounts" . | trim }}
volumeMounts: {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "nacre.volumeList" -}}
{{- include "nacre.modelVolume" .model }}
{{- range .secrets }}
- name: {{ .name }}
  {{- if .configMap }}
  configMap: {name: {{ .configMap }}}
  {{- else if .items }}
  secret:
    secretName: {{ .secret }}
    items: {{- range .items }}
      - {key: {{ . }}, path: {{ . }}}
    {{- end }}
  {{- else }}
  secret: {secretName: {{ .secret }}}
  {{- end }}
{{- end }}
{{- with .pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- define "nacre.volumes" -}}
{{- with include "nacre.volumeList" . | trim }}
volumes: {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Probes over HTTP: gRPC probes know no TLS (docs/operations.md, "Health"). */}}
{{- define "nacre.probes" -}}
startupProbe:
  httpGet: {path: /startup, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ div (add .startupSeconds 1) 2 }}
livenessProbe:
  httpGet: {path: /liveness, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readiness, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 1
{{- end -}}

{{/* The metadata of a pod. */}}
{{- define "nacre.podMetadata" -}}
labels:
  {{- include "nacre.labels" . | nindent 2 }}
  {{- with .pod.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge dict (default dict .annotations) (default dict .pod.annotations) .root.Values.commonAnnotations }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of a pod's spec: who it runs as and where. enableServiceLinks would make
environment variables that the programs take for flags. */}}
{{- define "nacre.podSpec" -}}
serviceAccountName: {{ include "nacre.fullname" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .pod.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .pod.resourceClaims }}
resourceClaims: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .pod.topologySpreadConstraints }}
{{- toYaml .pod.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "nacre.selector" . | nindent 8 }}
{{- if .spreads }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/{{ .spreads }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "nacre.selector" . | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The image and rights of a container. */}}
{{- define "nacre.container" -}}
image: {{ include "nacre.image" . | quote }}
imagePullPolicy: {{ default .root.Values.image.pullPolicy (default dict .image).pullPolicy }}
{{- with .root.Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "nacre.podIp" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end -}}
