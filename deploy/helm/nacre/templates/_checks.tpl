{{/* Parts of checks.yaml. They render nothing, or fail. */}}

{{/* extraArgs and NACRE_... of extraEnv are flags of the pod's program:
(dict "component" "gateway" "pod" values "values" (list "listen") "switches" (list "no-ui")
"own" (list "listen") "flags" (dict "ping-period" "5s")), own those that the chart sets.
A flag is given once, but for those that a program collects. */}}
{{- define "nacre.checkFlags" -}}
{{- $program := printf "nacre-%s%s" .component (ternary "-worker" "" (has .component (list "target" "draft"))) -}}
{{- $flags := concat .values .switches -}}
{{- $many := get (dict "gateway" (list "served-model-name") "target" (list "policy-file") "draft" (list "policy-file")) .component | default list -}}
{{- $given := dict -}}
{{- $open := "" -}}
{{- range $index, $argument := .pod.extraArgs -}}
{{- $at := printf "%s.pod.extraArgs[%d] is %s" $.component $index $argument -}}
{{- if hasPrefix "--" $argument -}}
{{- if $open }}{{ fail $open }}{{ end -}}
{{- $name := trimPrefix "--" (first (splitList "=" $argument)) -}}
{{- if not (has $name $flags) -}}
{{- fail (printf "%s, but %s has no flag --%s" $at $program $name) -}}
{{- end -}}
{{- if has $name $.own -}}
{{- fail (printf "%s, but the chart sets --%s itself" $at $name) -}}
{{- end -}}
{{- if hasKey $.flags $name -}}
{{- fail (printf "%s, but %s.flags sets --%s" $at $.component $name) -}}
{{- end -}}
{{- if and (hasKey $given $name) (not (has $name $many)) -}}
{{- fail (printf "%s, but %s.pod.extraArgs[%d] sets --%s" $at $.component (get $given $name) $name) -}}
{{- end -}}
{{- $_ := set $given $name $index -}}
{{- if and (has $name $.values) (not (contains "=" $argument)) -}}
{{- $open = printf "%s, but no value follows" $at -}}
{{- end -}}
{{- else -}}
{{- if not $open }}{{ fail (printf "%s, but no flag before it takes a value" $at) }}{{ end -}}
{{- $open = "" -}}
{{- end -}}
{{- end -}}
{{- if $open }}{{ fail $open }}{{ end -}}
{{- $named := dict -}}
{{- range $index, $variable := .pod.extraEnv -}}
{{- $name := trimPrefix "NACRE_" $variable.name | lower | replace "_" "-" -}}
{{- if and (hasPrefix "NACRE_" $variable.name) (hasKey $named $variable.name) -}}
{{- fail (printf "%s.pod.extraEnv[%d].name is %s, as that of extraEnv[%d]" $.component $index $variable.name (get $named $variable.name)) -}}
{{- end -}}
{{- $_ := set $named $variable.name $index -}}
{{- $isFlag := eq $variable.name (printf "NACRE_%s" (upper $name | replace "-" "_")) -}}
{{- if and (hasPrefix "NACRE_" $variable.name) (not (and $isFlag (has $name $flags))) -}}
{{- fail (printf "%s.pod.extraEnv[%d].name is %s, but %s has no flag of that name" $.component $index $variable.name $program) -}}
{{- end -}}
{{- if and (hasPrefix "NACRE_" $variable.name) (or (has $name $.own) (hasKey $.flags $name) (hasKey $given $name)) -}}
{{- fail (printf "%s.pod.extraEnv[%d].name is %s, but --%s is set, which goes before it" $.component $index $variable.name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The flags that the chart sets by itself, as JSON: (dict "root" $ "component" "target"). */}}
{{- define "nacre.ownFlags" -}}
{{- $v := .root.Values -}}
{{- $self := index $v .component -}}
{{- $own := list "listen" "metrics-listen" "drain-timeout" "log-format" "log-level" -}}
{{- $tls := list "tls-cert" "tls-key" "tls-ca" "tls-server-name" "tls-client-auth" -}}
{{- $tokens := list "auth-tokens-file" -}}
{{- $public := list "public-tls-cert" "public-tls-key" -}}
{{- if eq .component "coordinator" -}}
{{- $own = concat $own (list "tokenizer" "registry-listen" "admin-listen") (ternary $tls list $v.tls.enabled) -}}
{{- $own = concat $own (ternary $public list (ne $self.publicTls.existingSecret "")) -}}
{{- $own = concat $own (ternary $tokens list (ne $self.auth.existingSecret "")) -}}
{{- $own = concat $own (ternary (list "admin-tokens-file") list (ne $self.adminAuth.existingSecret "")) -}}
{{- $own = concat $own (ternary (list "otlp-headers-file") list (ne $self.otlpHeaders.existingSecret "")) -}}
{{- else if eq .component "gateway" -}}
{{- $own = concat $own (list "tokenizer" "coordinator") -}}
{{- $own = concat $own (ternary (list "tls-ca" "tls-server-name") list (or $v.tls.enabled (ne $v.coordinator.publicTls.existingSecret ""))) -}}
{{- $own = concat $own (ternary $public list (ne $self.tls.existingSecret "")) -}}
{{- $own = concat $own (ternary $tokens list (ne $self.auth.existingSecret "")) -}}
{{- $own = concat $own (ternary (list "token-file") list (ne $self.token.existingSecret "")) -}}
{{- $own = concat $own (ternary (list "chat-template") list (ne $self.chatTemplate "")) -}}
{{- $own = concat $own (ternary (list "admin" "admin-tokens-file") list (eq $self.fleet.enabled true)) -}}
{{- $own = concat $own (ternary list (list "no-ui") $self.ui) -}}
{{- $own = concat $own (ternary (list "served-model-name") list (gt (len $self.servedModelNames) 0)) -}}
{{- else -}}
{{- $own = concat $own (list "model" "coordinator" "advertise" "nodes" "node-rank" "leader-address") (ternary $tls list $v.tls.enabled) -}}
{{- $own = concat $own (ternary (list "policy-file") list (gt (len (default dict $self.policyFiles)) 0)) -}}
{{- end -}}
{{- toJson $own -}}
{{- end -}}

{{/* A quantity of Kubernetes as a number. YAML has made floats of what had no suffix. */}}
{{- define "nacre.number" -}}
{{- $factors := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $text := toString . -}}
{{- $digits := regexFind "^[0-9.]+" $text -}}
{{- $suffix := trimPrefix $digits $text -}}
{{- if regexMatch "^[0-9.]+[eE][-+]?[0-9]+$" $text -}}
{{- printf "%.3f" (float64 $text) -}}
{{- else if and $digits (hasKey $factors $suffix) -}}
{{- mulf (float64 $digits) (get $factors $suffix) -}}
{{- end -}}
{{- end -}}

{{/* Nothing is asked for beyond its limit: (dict "resources" r "at" "target"). */}}
{{- define "nacre.checkRequests" -}}
{{- $resources := default dict .resources -}}
{{- $limits := default dict $resources.limits -}}
{{- range $name, $request := default dict $resources.requests -}}
{{- if hasKey $limits $name -}}
{{- $limit := get $limits $name -}}
{{- $asked := include "nacre.number" $request -}}
{{- $most := include "nacre.number" $limit -}}
{{- if and $asked $most (gt (float64 $asked) (float64 $most)) -}}
{{- fail (printf "%s.resources.requests.%s is %v, more than its limit, %v" $.at $name $request $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Backend, GPUs and weights of a worker fit together: (dict "role" "target" "worker" values).
Where extraArgs or extraEnv name a backend, that is the user's own affair. */}}
{{- define "nacre.checkBackend" -}}
{{- $worker := .worker -}}
{{- $flags := default dict $worker.flags -}}
{{- $backend := toString (default "cpu" $flags.backend) -}}
{{- $weights := toString (default "auto" $flags.weights) -}}
{{- $count := int (default 0 $worker.gpu.count) -}}
{{- $resource := $worker.gpu.resourceName -}}
{{- $limits := default dict (default dict $worker.resources).limits -}}
{{- $requests := default dict (default dict $worker.resources).requests -}}
{{- $elsewhere := false -}}
{{- range $worker.pod.extraArgs -}}{{- if hasPrefix "--backend" . }}{{ $elsewhere = true }}{{ end -}}{{- end -}}
{{- range $worker.pod.extraEnv -}}{{- if eq .name "NACRE_BACKEND" }}{{ $elsewhere = true }}{{ end -}}{{- end -}}
{{- if and $count (hasKey $limits $resource) (ne (toString $count) (toString (get $limits $resource))) -}}
{{- fail (printf "%s.gpu.count is %d, but %s.resources.limits has %v of %s" .role $count .role (get $limits $resource) $resource) -}}
{{- end -}}
{{- $devices := default $count (get $limits $resource) -}}
{{- if and (hasKey $requests $resource) (ne (toString $devices) (toString (get $requests $resource))) -}}
{{- fail (printf "%s.resources.requests has %v of %s, of which the limit is %v: Kubernetes takes no others than the limit" .role (get $requests $resource) $resource $devices) -}}
{{- end -}}
{{- if not $elsewhere -}}
{{- $hasGpu := or $count (hasKey $limits $resource) $worker.pod.resourceClaims $worker.pod.runtimeClassName -}}
{{- if and (eq $backend "cuda") (not $hasGpu) -}}
{{- fail (printf "%s.flags.backend is cuda, but %s.gpu.count is 0: the worker would see no GPU" .role .role) -}}
{{- end -}}
{{- if and (ne $backend "cuda") $count -}}
{{- fail (printf "%s.gpu.count is %d, but %s.flags.backend is %s, which uses no GPU" .role $count .role $backend) -}}
{{- end -}}
{{- $ranks := toString (default "0" (get $flags "tensor-parallel")) -}}
{{- $nodes := int $worker.nodes -}}
{{- if and (eq $backend "cuda") $devices (gt (int $ranks) (mul (int $devices) $nodes | int)) -}}
{{- fail (printf "%s.flags.tensor-parallel is %s, but %s.gpu.count is %v%s: each rank has a GPU" .role $ranks .role $devices (ternary (printf " on each of %d nodes" $nodes) "" (gt $nodes 1))) -}}
{{- end -}}
{{- if and (gt $nodes 1) (lt (int $ranks) $nodes) -}}
{{- fail (printf "%s.nodes is %d, but %s.flags.tensor-parallel is %s: each node has a rank or more" .role $nodes .role $ranks) -}}
{{- end -}}
{{- if ne $ranks "0" -}}
{{- range $name := list "medusa" "eagle" "glide" "publish-features" -}}
{{- if get $flags $name -}}
{{- fail (printf "%s.flags.%s is %v, but %s.flags.tensor-parallel is %s: a model that is split shows no draft what it computes" $.role $name (get $flags $name) $.role $ranks) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq (toString (get $flags "prefill")) "cublas" -}}
{{- if ne $backend "cuda" -}}
{{- fail (printf "%s.flags.prefill is cublas, but %s.flags.backend is %s: only cuda has it" .role .role $backend) -}}
{{- end -}}
{{- if ne $ranks "0" -}}
{{- fail (printf "%s.flags.prefill is cublas, but %s.flags.tensor-parallel is %s: ranks cannot have it" .role .role $ranks) -}}
{{- end -}}
{{- if not (has $weights (list "auto" "bf16" "bf16a16")) -}}
{{- fail (printf "%s.flags.prefill is cublas, but %s.flags.weights is %s: only bf16 has it" .role .role $weights) -}}
{{- end -}}
{{- end -}}
{{- $listed := splitList "," (toString (default "0" (get $flags "device"))) -}}
{{- if gt (len $listed) 1 -}}
{{- $at := printf "%s.flags.device is %v" .role (get $flags "device") -}}
{{- if ne $backend "cuda" -}}
{{- fail (printf "%s, but %s.flags.backend is %s: only cuda has GPUs" $at .role $backend) -}}
{{- end -}}
{{- if ne (len $listed | mul $nodes | int) (int $ranks) -}}
{{- fail (printf "%s, but %s.flags.tensor-parallel is %s%s: each rank has a GPU of the list" $at .role $ranks (ternary (printf " on %d nodes" $nodes) "" (gt $nodes 1))) -}}
{{- end -}}
{{- if and (lt (len (uniq $listed)) (len $listed)) (not (get $flags "max-memory")) -}}
{{- fail (printf "%s, with a GPU twice, but %s.flags.max-memory is not set: ranks that share a GPU need it" $at .role) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $backend "cuda") (eq $weights "fp8") -}}
{{- fail (printf "%s.flags.weights is fp8, but %s.flags.backend is %s: only cuda has them" .role .role $backend) -}}
{{- end -}}
{{- if and (eq $backend "cuda") (eq (toString (get $flags "kv-type")) "int8") -}}
{{- fail (printf "%s.flags.kv-type is int8, but %s.flags.backend is cuda: only cpu has them" .role .role) -}}
{{- end -}}
{{- if and (ne $backend "cuda") (eq (toString (get $flags "tensor-transport")) "nccl") -}}
{{- fail (printf "%s.flags.tensor-transport is nccl, but %s.flags.backend is %s: only cuda has it" .role .role $backend) -}}
{{- end -}}
{{- if and (ne $backend "cuda") (eq (toString (get $flags "tensor-parallel-transport")) "nccl") -}}
{{- fail (printf "%s.flags.tensor-parallel-transport is nccl, but %s.flags.backend is %s: only cuda has it" .role .role $backend) -}}
{{- end -}}
{{- if and (eq $ranks "0") (eq (toString (get $flags "tensor-parallel-transport")) "nccl") -}}
{{- fail (printf "%s.flags.tensor-parallel-transport is nccl, but %s.flags.tensor-parallel is not set: there are no ranks to add up" .role .role) -}}
{{- end -}}
{{- if eq (toString (get $flags "tensor-parallel-transport")) "peer" -}}
{{- if ne $backend "cuda" -}}
{{- fail (printf "%s.flags.tensor-parallel-transport is peer, but %s.flags.backend is %s: only cuda has it" .role .role $backend) -}}
{{- end -}}
{{- if lt (int $ranks) 2 -}}
{{- fail (printf "%s.flags.tensor-parallel-transport is peer, but %s.flags.tensor-parallel is %s: one rank has no peers" .role .role $ranks) -}}
{{- end -}}
{{- if gt $nodes 1 -}}
{{- fail (printf "%s.flags.tensor-parallel-transport is peer, but %s.nodes is %d: GPUs of several nodes cannot read each other's memory" .role .role $nodes) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $backend "cuda") (has (toString (get $flags "persistent-steps")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.persistent-steps is on, but %s.flags.backend is %s: only cuda has them" .role .role $backend) -}}
{{- end -}}
{{- if and (ne $ranks "0") (has (toString (get $flags "persistent-steps")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.persistent-steps is on, but %s.flags.tensor-parallel is %s: ranks cannot have them" .role .role $ranks) -}}
{{- end -}}
{{- if and (eq (toString (get $flags "tensor-transport")) "nccl") (has (toString (get $flags "persistent-steps")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.persistent-steps is on, but %s.flags.tensor-transport is nccl: a transfer keeps what such a step needs" .role .role) -}}
{{- end -}}
{{- if and (not (has $weights (list "" "<nil>" "auto" "bf16" "bf16a16"))) (has (toString (get $flags "persistent-steps")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.persistent-steps is on, but %s.flags.weights is %s: only bf16 has them" .role .role $weights) -}}
{{- end -}}
{{- if and (not (has (toString (get $flags "kv-type")) (list "" "<nil>" "auto" "bf16"))) (has (toString (get $flags "persistent-steps")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.persistent-steps is on, but %s.flags.kv-type is %v: only bf16 has them" .role .role (get $flags "kv-type")) -}}
{{- end -}}
{{- if and (ne $backend "cuda") (has (toString (get $flags "warpgroup-attention")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.warpgroup-attention is on, but %s.flags.backend is %s: only cuda has it" .role .role $backend) -}}
{{- end -}}
{{- if and (not (has (toString (get $flags "kv-type")) (list "" "<nil>" "auto" "bf16"))) (has (toString (get $flags "warpgroup-attention")) (list "on" "true")) -}}
{{- fail (printf "%s.flags.warpgroup-attention is on, but %s.flags.kv-type is %v: only bf16 has it" .role .role (get $flags "kv-type")) -}}
{{- end -}}
{{- $kept := toString (default "0" (get $flags "prefix-cache-size")) -}}
{{- if and (ne $kept "0") (has (toString (get $flags "prefix-cache")) (list "off" "false")) -}}
{{- fail (printf "%s.flags.prefix-cache-size is %s, but %s.flags.prefix-cache is off" .role $kept .role) -}}
{{- end -}}
{{- if and (eq $kept "0") (get $flags "prefix-cache-dir") -}}
{{- fail (printf "%s.flags.prefix-cache-dir is %v, but %s.flags.prefix-cache-size, the size of its file, is not set" .role (get $flags "prefix-cache-dir") .role) -}}
{{- end -}}
{{- if and (eq $backend "cuda") (ne $kept "0") -}}
{{- fail (printf "%s.flags.prefix-cache-size is %s, but %s.flags.backend is cuda: only cpu keeps more than its KV cache holds" .role $kept .role) -}}
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
