{{/* Rules of deploy/prometheus are for one fleet in one Prometheus. Here each
release has its own, so every series is chosen, and every sum made, by
namespace and release. */}}

{{- define "nacre.matchers" -}}
{namespace="{{ .Release.Namespace }}",app_kubernetes_io_instance="{{ .Release.Name }}"}
{{- end -}}

{{/* (dict "root" $ "expr" text) */}}
{{- define "nacre.expr" -}}
{{- $own := include "nacre.matchers" .root -}}
{{- $expr := regexReplaceAll `(nacre[_:][a-z_:]+)\{` .expr (printf "${1}%s," (trimSuffix "}" $own)) -}}
{{- $expr = regexReplaceAll `(nacre[_:][a-z_:]+)([^a-z_:{]|$)` $expr (printf "${1}%s${2}" $own) -}}
{{- $expr = regexReplaceAll `\b(sum|max) by \(([a-z_, ]+)\)` $expr "${1} by (${2}, namespace, app_kubernetes_io_instance)" -}}
{{- regexReplaceAll `\b(sum|max)\(` $expr "${1} by (namespace, app_kubernetes_io_instance) (" -}}
{{- end -}}

{{/* The groups of a file: (dict "root" $ "file" "files/alerts.yaml"). */}}
{{- define "nacre.ruleGroups" -}}
{{- $file := .root.Files.Get .file | fromYaml -}}
{{- range $group := $file.groups -}}
{{- range $rule := $group.rules -}}
{{- $_ := set $rule "expr" (include "nacre.expr" (dict "root" $.root "expr" $rule.expr)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $file.groups -}}
{{- end -}}
