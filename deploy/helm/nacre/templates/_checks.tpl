{{/* Parts of checks.yaml. They render nothing, or fail. */}}

{{/* extraArgs and NACRE_... of extraEnv are flags of the pod's program:
(dict "component" "gateway" "pod" values "values" (list "listen") "switches" (list "no-ui")). */}}
{{- define "nacre.checkFlags" -}}
{{- $program := printf "nacre-%s%s" .component (ternary "-worker" "" (has .component (list "target" "draft"))) -}}
{{- $flags := concat .values .switches -}}
{{- $open := "" -}}
{{- range $index, $argument := .pod.extraArgs -}}
{{- $at := printf "%s.pod.extraArgs[%d] is %s" $.component $index $argument -}}
{{- if hasPrefix "--" $argument -}}
{{- if $open }}{{ fail $open }}{{ end -}}
{{- $name := trimPrefix "--" (first (splitList "=" $argument)) -}}
{{- if not (has $name $flags) -}}
{{- fail (printf "%s, but %s has no flag --%s" $at $program $name) -}}
{{- end -}}
{{- if and (has $name $.values) (not (contains "=" $argument)) -}}
{{- $open = printf "%s, but no value follows" $at -}}
{{- end -}}
{{- else -}}
{{- if not $open }}{{ fail (printf "%s, but no flag before it takes a value" $at) }}{{ end -}}
{{- $open = "" -}}
{{- end -}}
{{- end -}}
{{- if $open }}{{ fail $open }}{{ end -}}
{{- range $index, $variable := .pod.extraEnv -}}
{{- $name := trimPrefix "NACRE_" $variable.name | lower | replace "_" "-" -}}
{{- $isFlag := eq $variable.name (printf "NACRE_%s" (upper $name | replace "-" "_")) -}}
{{- if and (hasPrefix "NACRE_" $variable.name) (not (and $isFlag (has $name $flags))) -}}
{{- fail (printf "%s.pod.extraEnv[%d].name is %s, but %s has no flag of that name" $.component $index $variable.name $program) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What is set below `gateway` is of no use without it. Only what the chart leaves
empty shows that it was set: (.Values.gateway). */}}
{{- define "nacre.checkGatewayOff" -}}
{{- $paths := list "fleet.enabled" "fleet.auth.existingSecret" "autoscaling.enabled" "auth.existingSecret" "token.existingSecret" "tls.existingSecret" "servedModelNames" "chatTemplate" "flags" "service.annotations" -}}
{{- range $name := keys .pod | sortAlpha -}}
{{- $paths = append $paths (printf "pod.%s" $name) -}}
{{- end -}}
{{- range $path := $paths -}}
{{- $value := $ -}}
{{- range $name := splitList "." $path -}}
{{- $value = get (default dict $value) $name -}}
{{- end -}}
{{- if $value -}}
{{- fail (printf "gateway.%s needs gateway.enabled: without a gateway it would be ignored" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Claims are of the pod: (dict "component" "target" "pod" values "resources" r
"at" "model.target.initContainer"). */}}
{{- define "nacre.checkClaims" -}}
{{- $known := list -}}
{{- range .pod.resourceClaims -}}
{{- $known = append $known .name -}}
{{- end -}}
{{- range $index, $claim := (default dict .resources).claims -}}
{{- if not (has $claim.name $known) -}}
{{- fail (printf "%s.resources.claims[%d].name is %s, but %s.pod.resourceClaims has no claim of that name" $.at $index $claim.name $.component) -}}
{{- end -}}
{{- end -}}
{{- end -}}
