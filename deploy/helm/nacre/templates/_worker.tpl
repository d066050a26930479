{{/* A worker's pod, as a template: (dict "root" $ "role" "target" "self" of
nacre.metadata "model" of nacre.modelInit "node" ""). `node` is leader or follower
where the model is on several. A follower serves nobody: its leader, and whoever
restarts the group with it, notice what becomes of it. */}}
{{- define "nacre.workerPod" -}}
{{- $v := index .root.Values .role -}}
{{- $follows := eq .node "follower" -}}
{{- $ip := ternary "[$(POD_IP)]" "$(POD_IP)" (eq .root.Values.ipFamily "IPv6") -}}
{{- $secrets := list -}}
{{- if .root.Values.tls.enabled -}}
{{- $secrets = append $secrets (dict "name" "tls" "secret" .root.Values.tls.existingSecret) -}}
{{- end -}}
{{- $files := dict "model" .model "secrets" $secrets "pod" $v.pod -}}
{{- $resources := deepCopy (default dict $v.resources) -}}
{{- if $v.gpu.count -}}
{{- $limits := merge (dict $v.gpu.resourceName $v.gpu.count) (default dict $resources.limits) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
metadata: {{- include "nacre.podMetadata" .self | nindent 2 }}
spec:
  {{- include "nacre.podSpec" .self | nindent 2 }}
  # The drain, and what leaving takes. No preStop: no balancer sends it anything,
  # the coordinator hears of the drain with the next heartbeat.
  terminationGracePeriodSeconds: {{ add $v.drainSeconds 15 }}
  {{- include "nacre.modelInit" .model | nindent 2 }}
  containers:
    - name: {{ .role }}
      {{- include "nacre.container" .self | nindent 6 }}
      command: [nacre-{{ .role }}-worker]
      args:
        - --model={{ include "nacre.modelDir" .model }}
        {{- if not $follows }}
        - --coordinator={{ include "nacre.registry" .root }}
        - --listen={{ include "nacre.any" .root }}:9000
        - --advertise={{ $ip }}:9000
        - --metrics-listen={{ include "nacre.any" .root }}:9464
        - --drain-timeout={{ $v.drainSeconds }}s
        {{- end }}
        {{- if .node }}
        - --nodes={{ $v.nodes }}
        - --node-rank={{ ternary "$(LWS_WORKER_INDEX)" "0" $follows }}
        - --leader-address={{ ternary "$(LWS_LEADER_ADDRESS)" $ip $follows }}:9001
        {{- end }}
        {{- include "nacre.tlsFlags" .root | nindent 8 }}
        {{- if .root.Values.tls.enabled }}
        - --tls-client-auth={{ .root.Values.tls.clientAuth }}
        {{- end }}
        {{- if not $follows }}
        {{- range $policy, $dir := $v.policyFiles }}
        - --policy-file={{ $policy }}={{ $dir }}
        {{- end }}
        {{- end }}
        {{- include "nacre.flags" (dict "root" .root "flags" $v.flags "pod" $v.pod) | nindent 8 }}
      env:
        {{- include "nacre.podIp" .root | nindent 8 }}
        {{- with $v.pod.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if not $follows }}
      ports:
        - {name: grpc, containerPort: 9000}
        - {name: metrics, containerPort: 9464}
        {{- if .node }}
        - {name: ranks, containerPort: 9001}
        {{- end }}
      {{- include "nacre.probes" $v | nindent 6 }}
      {{- end }}
      resources: {{- toYaml $resources | nindent 8 }}
      {{- include "nacre.volumeMounts" $files | nindent 6 }}
  {{- include "nacre.volumes" $files | nindent 2 }}
{{- end -}}

{{/* What scales a role's pods: (dict "root" $ "role" "target"). */}}
{{- define "nacre.scaled" -}}
{{- if gt (int (index .root.Values .role).nodes) 1 -}}
apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet
{{- else -}}
apiVersion: apps/v1, kind: Deployment
{{- end -}}
{{- end -}}
