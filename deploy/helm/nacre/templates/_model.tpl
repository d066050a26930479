{{/* Where a checkpoint comes from. Each takes
(dict "source" values "key" "model.target" "name" "folder's name"). */}}

{{/* The kind of the source, "" without one. Several are an error. */}}
{{- define "nacre.sourceKind" -}}
{{- $kinds := list -}}
{{- if .source.pvc.claimName }}{{ $kinds = append $kinds "pvc" }}{{ end -}}
{{- if .source.hostPath.path }}{{ $kinds = append $kinds "hostPath" }}{{ end -}}
{{- if .source.image.reference }}{{ $kinds = append $kinds "image" }}{{ end -}}
{{- if .source.initContainer }}{{ $kinds = append $kinds "initContainer" }}{{ end -}}
{{- if .source.path }}{{ $kinds = append $kinds "path" }}{{ end -}}
{{- if gt (len $kinds) 1 -}}
{{- fail (printf "%s has %d sources (%s), must have one" .key (len $kinds) (join ", " $kinds)) -}}
{{- end -}}
{{- join "" $kinds -}}
{{- end -}}

{{- define "nacre.modelDir" -}}
{{- default (printf "/models/%s" .name) .source.path -}}
{{- end -}}

{{- define "nacre.modelVolume" -}}
{{- $kind := include "nacre.sourceKind" . -}}
{{- if and $kind (ne $kind "path") }}
- name: model
  {{- if eq $kind "pvc" }}
  persistentVolumeClaim: {claimName: {{ .source.pvc.claimName }}, readOnly: true}
  {{- else if eq $kind "hostPath" }}
  hostPath: {path: {{ .source.hostPath.path }}, type: Directory}
  {{- else if eq $kind "image" }}
  image: {reference: {{ .source.image.reference | quote }}, pullPolicy: {{ .source.image.pullPolicy }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "nacre.modelMount" -}}
{{- $kind := include "nacre.sourceKind" . -}}
{{- if and $kind (ne $kind "path") }}
- name: model
  mountPath: {{ include "nacre.modelDir" . }}
  readOnly: true
  {{- with coalesce .source.pvc.subPath .source.image.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ and as above) */}}
{{- define "nacre.modelInit" -}}
{{- if eq (include "nacre.sourceKind" .) "initContainer" }}
{{- $container := deepCopy .source.initContainer }}
{{- $mount := dict "name" "model" "mountPath" "/models" }}
{{- $_ := set $container "name" (default "model" $container.name) }}
{{- $_ := set $container "volumeMounts" (append (default list $container.volumeMounts) $mount) }}
{{- if not $container.securityContext }}
{{- $_ := set $container "securityContext" .root.Values.securityContext }}
{{- end }}
initContainers: {{- toYaml (list $container) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Whose files the tokenizer is of: its own source, else the target's. */}}
{{- define "nacre.tokenizer" -}}
{{- $values := .Values.model -}}
{{- $own := include "nacre.sourceKind" (dict "source" $values.tokenizer "key" "model.tokenizer") -}}
{{- ternary "tokenizer" "target" (ne $own "") -}}
{{- end -}}
