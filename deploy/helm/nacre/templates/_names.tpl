{{/* Names, labels and images. */}}

{{- define "nacre.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{/* Of a component: (dict "root" $ "component" "target"). Selectors never change. */}}
{{- define "nacre.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "nacre.labels" -}}
{{ include "nacre.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "component" "target" "name" "full name" "extraLabels" dict) */}}
{{- define "nacre.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels: {{- include "nacre.labels" . | nindent 2 }}
{{- with .extraLabels }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge dict (default dict .annotations) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "image" values): empty fields are those of `image`. */}}
{{- define "nacre.image" -}}
{{- $base := .root.Values.image -}}
{{- $own := default dict .image -}}
{{- $repository := default $base.repository $own.repository -}}
{{- $inherits := not (or $own.repository $own.tag) -}}
{{- $digest := default (ternary $base.digest "" $inherits) $own.digest -}}
{{- if $digest -}}
{{ $repository }}@{{ $digest }}
{{- else -}}
{{ $repository }}:{{ coalesce $own.tag $base.tag .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The name of a Service of this release: (dict "root" $ "service" "registry"). */}}
{{- define "nacre.host" -}}
{{ include "nacre.fullname" .root }}-{{ .service }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}

{{/* Whether there are several coordinators: "true" or "". */}}
{{- define "nacre.severalCoordinators" -}}
{{- if gt (int .Values.coordinator.replicas) 1 }}true{{ end -}}
{{- end -}}

{{/* Where workers find all coordinators: DNS names the pods of a headless Service. */}}
{{- define "nacre.registry" -}}
{{- if include "nacre.severalCoordinators" . -}}
dns:{{ include "nacre.host" (dict "root" . "service" "registries") }}:50051
{{- else -}}
{{ include "nacre.host" (dict "root" . "service" "registry") }}:50051
{{- end -}}
{{- end -}}

{{/* Where each coordinator serves: (dict "root" $ "service" "coordinator" "port" 50050),
or, where there is one, the port for operators of "admin". */}}
{{- define "nacre.coordinators" -}}
{{- if include "nacre.severalCoordinators" .root -}}
{{- $hosts := list -}}
{{- range $i := until (int .root.Values.coordinator.replicas) -}}
{{- $host := include "nacre.host" (dict "root" $.root "service" (printf "coordinator-%d" $i)) -}}
{{- $hosts = append $hosts (printf "%s:%v" $host $.port) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- else -}}
{{ include "nacre.host" . }}:{{ .port }}
{{- end -}}
{{- end -}}

{{/* All addresses of a pod. */}}
{{- define "nacre.any" -}}
{{ ternary "[::]" "0.0.0.0" (eq .Values.ipFamily "IPv6") }}
{{- end -}}

{{/* Peers of a NetworkPolicy: (dict "root" $ "components" (list "target")). */}}
{{- define "nacre.peers" -}}
{{- range .components }}
- podSelector:
    matchLabels: {{- include "nacre.selector" (dict "root" $.root "component" .) | nindent 6 }}
{{- end }}
{{- end -}}
