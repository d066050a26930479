{{/* scripts/render_chart.py --flags made it: the flags of each program. */}}
{{- define "nacre.programFlags" -}}
coordinator:
  values: [address-file, admin-address-file, admin-listen, admin-tokens-file,
    auth-tokens-file, client-timeout, default-policy, draft-rows, drain-timeout,
    failover-timeout, hold-without-target, idle-timeout, listen, log-format, log-level,
    max-client-memory-bytes, max-connection-age, max-connections, max-queue,
    max-request-bytes, max-request-duration, max-running, max-streams-per-client,
    max-streams-per-connection, metrics-address-file, metrics-listen, otlp-compression,
    otlp-endpoint, otlp-headers-file, otlp-sample-ratio, otlp-timeout, otlp-tls-ca,
    otlp-tls-cert, otlp-tls-key, public-tls-ca, public-tls-cert, public-tls-key,
    queue-timeout, registry-address-file, registry-listen, served-model-name, tls-ca,
    tls-cert, tls-client-auth, tls-key, tls-server-name, tokenizer, tokenizer-threads,
    tree-rows, worker-timeout]
  switches: []
gateway:
  values: [address-file, admin, admin-tokens-file, auth-tokens-file, body-timeout,
    chat-template, coordinator, cors-origin, default-max-tokens, drain-idle,
    drain-timeout, header-timeout, idle-timeout, listen, log-format, log-level,
    max-connection-age, max-connections, max-header-bytes, max-held-bytes,
    max-request-bytes, metrics-address-file, metrics-listen, ping-period, public-tls-ca,
    public-tls-cert, public-tls-key, request-timeout, resume-timeout, served-model-name,
    tls-ca, tls-cert, tls-key, tls-server-name, token-file, tokenizer, tokenizer-config,
    write-timeout]
  switches: [escape-special-tokens, no-ui, tls, trust-request-chat-template]
target:
  values: [address-file, advertise, backend, coordinator, cpus, device, drain-timeout,
    eagle, feature-cache, gate-timeouts, glide, hang-timeout, join-timeout, kv-type,
    leader-address, least-vocabulary-share, listen, log-format, log-level, max-memory,
    medusa, medusa-tree, metrics-address-file, metrics-listen, model, node-rank, nodes,
    own-draft-step-time, persistent-steps, policy-file, prefill, prefill-chunk,
    prefix-cache, prefix-cache-dir, prefix-cache-size, publish-features, record-features,
    record-hidden, spin, step-time, suffix-cache, suffix-drafter, target-tokenizer,
    tensor-parallel, tensor-parallel-transport, tensor-transport, tls-ca, tls-cert,
    tls-client-auth, tls-key, tls-server-name, warpgroup-attention, weights]
  switches: []
draft:
  values: [address-file, advertise, backend, coordinator, cpus, device, drain-timeout,
    eagle, feature-cache, gate-timeouts, glide, hang-timeout, join-timeout, kv-type,
    leader-address, least-vocabulary-share, listen, log-format, log-level, max-memory,
    medusa, medusa-tree, metrics-address-file, metrics-listen, model, node-rank, nodes,
    own-draft-step-time, persistent-steps, policy-file, prefill, prefill-chunk,
    prefix-cache, prefix-cache-dir, prefix-cache-size, publish-features, record-features,
    record-hidden, spin, step-time, suffix-cache, suffix-drafter, target-tokenizer,
    tensor-parallel, tensor-parallel-transport, tensor-transport, tls-ca, tls-cert,
    tls-client-auth, tls-key, tls-server-name, warpgroup-attention, weights]
  switches: []
{{- end -}}
