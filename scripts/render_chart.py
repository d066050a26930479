#!/usr/bin/env python3
"""Renders the Helm chart with each of its ci/values-*.yaml.

  scripts/render_chart.py            writes tests/deploy/chart/golden/*.yaml
  scripts/render_chart.py --flags BIN  writes the chart's list of flags, of the
                                     programs in that folder, and gives those that
                                     the schema lacks a place in it
  scripts/render_chart.py --check    compares with them, checks what is rendered
                                     against the schemas of Kubernetes, and that
                                     wrong values are refused

Needs `helm-python-sdk` (Helm's own library) and `kubernetes-validate` of PyPI:

  python3 -m venv VENV && VENV/bin/pip install -r tests/deploy/chart/requirements.txt
  VENV/bin/python scripts/render_chart.py
"""

import difflib
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import textwrap

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy/helm/nacre"
GOLDEN = ROOT / "tests/deploy/chart/golden"
FLAGS = CHART / "templates/_flags.tpl"
SCHEMA = CHART / "values.schema.json"
PROGRAMS = {"coordinator": "nacre-coordinator", "gateway": "nacre-gateway",
            "target": "nacre-target-worker", "draft": "nacre-draft-worker"}
# Flags that the chart sets, or that mean nothing in it: addresses, files in the
# pod, recordings.
OWN = {
    "coordinator": {"tokenizer", "listen", "registry-listen", "admin-listen",
                    "drain-timeout", "auth-tokens-file", "admin-tokens-file",
                    "otlp-headers-file", "public-tls-cert", "public-tls-key"},
    "gateway": {"tokenizer", "coordinator", "listen", "served-model-name",
                "chat-template", "tokenizer-config", "auth-tokens-file", "token-file",
                "public-tls-cert", "public-tls-key", "tls", "drain-timeout",
                "no-ui", "admin", "admin-tokens-file"},
    "target": {"model", "coordinator", "listen", "advertise", "drain-timeout",
               "nodes", "node-rank", "leader-address", "policy-file", "record-features",
               "record-hidden"},
}
OWN["draft"] = OWN["target"]
EVERYWHERE = {"metrics-listen", "address-file", "metrics-address-file",
              "registry-address-file", "admin-address-file", "log-format", "log-level",
              "tls-cert", "tls-key", "tls-ca", "tls-client-auth", "tls-server-name",
              "help", "version"}
SWITCH = '{"enum": [true, false, "true", "false"]}'
VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
# Kubernetes before it knows no image volumes, and other claims of resources.
IMAGE_VOLUMES_SINCE = "1.31"
# Kinds that Kubernetes has no schemas of: other projects define them.
FOREIGN = {"PodMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute", "GRPCRoute",
           "LeaderWorkerSet"}
# What stands for the dashboard in a golden file.
DASHBOARD = "(deploy/grafana/nacre.json)\n"
# What is refused below `gateway` where that is off: its path.
WITHOUT_GATEWAY = [
    ("fleet.enabled", {"fleet": {"enabled": True}}),
    ("fleet.auth.existingSecret", {"fleet": {"auth": {"existingSecret": "s"}}}),
    ("autoscaling.enabled", {"autoscaling": {"enabled": True}}),
    # By itself it is refused for another reason.
    ("autoscaling.enabled", {"autoscaling": {"enabled": True, "minReplicas": 99}}),
    ("auth.existingSecret", {"auth": {"existingSecret": "s"}}),
    ("token.existingSecret", {"token": {"existingSecret": "s"}}),
    ("tls.existingSecret", {"tls": {"existingSecret": "s"}}),
    ("servedModelNames", {"servedModelNames": ["a"]}),
    ("chatTemplate", {"chatTemplate": "{{ messages }}"}),
    ("flags", {"flags": {"ping-period": "5s"}}),
    ("service.annotations", {"service": {"annotations": {"a": "b"}}}),
    ("pod.extraArgs", {"pod": {"extraArgs": ["--no-ui"]}}),
    ("pod.nodeSelector", {"pod": {"nodeSelector": {"a": "b"}}}),
    ("pod.priorityClassName", {"pod": {"priorityClassName": "a"}}),
]
# Values of flags that are of no such kind; ranges are the program's affair.
WRONG_FLAGS = [
    ("target", "backend", "cudda"),
    ("draft", "weights", "int3"),
    ("target", "kv-type", "int1"),
    ("target", "tensor-parallel", 3),
    ("target", "prefill", "mkl"),
    ("target", "max-memory", "16Gi"),
    ("target", "max-memory", -1),
    ("draft", "suffix-cache", "1e6"),
    ("target", "prefix-cache-size", "4Gi"),
    ("target", "prefix-cache", "yes"),
    ("target", "hang-timeout", 30),
    ("target", "hang-timeout", "30"),
    ("target", "hang-timeout", "-1s"),
    ("target", "join-timeout", "10"),
    ("target", "device", "first"),
    ("target", "least-vocabulary-share", 1.5),
    ("coordinator", "queue-timeout", "30 s"),
    ("coordinator", "max-queue", "many"),
    ("coordinator", "max-queue", 1.5),
    ("coordinator", "max-queue", -1),
    ("coordinator", "max-queue", 1 << 63),
    ("gateway", "escape-special-tokens", "x"),
    ("coordinator", "hold-without-target", 0),
    ("coordinator", "otlp-compression", "zip"),
    ("coordinator", "max-request-bytes", "1M"),
    ("gateway", "ping-period", "15"),
    ("gateway", "max-connections", ""),
]
# Values that must be refused: what of them the message must name.
REFUSED = [
    ({"target": {"replica": 3}}, ["/target", "replica"]),
    ({"coordinator": {"replicas": 0}}, ["/coordinator/replicas"]),
    ({"coordinator": {"replicas": "two"}}, ["/coordinator/replicas"]),
    ({"coordinator": {"replicas": 17}}, ["/coordinator/replicas"]),
    ({"coordinator": {"minReadySeconds": -1}}, ["/coordinator/minReadySeconds"]),
    ({"coordinator": {"preStopSeconds": "5s"}}, ["/coordinator/preStopSeconds"]),
    ({"coordinator": {"replicas": 2, "pdb": {"maxUnavailable": 0}}},
     ["/coordinator/pdb/maxUnavailable"]),
    ({"coordinator": {"replica": 2}}, ["/coordinator", "replica"]),
    ({"coordinator": {"flags": {"max-queu": 3}}}, ["/coordinator/flags", "max-queu"]),
    ({"target": {"flags": {"listen": "x"}}}, ["/target/flags", "listen"]),
    ({"draft": {"gpu": {"count": "one"}}}, ["/draft/gpu/count"]),
    ({"ipFamily": "IPv5"}, ["/ipFamily"]),
    ({"target": {"autoscaling": {"type": "vpa"}}}, ["/target/autoscaling/type"]),
    ({"model": {"target": {"pvc": {"claimName": ""}}}}, ["model.target has no source"]),
    ({"model": {"target": {"path": "/m"}}}, ["model.target has 2 sources (pvc, path)"]),
    ({"model": {"draft": {"pvc": {"claimName": ""}}}}, ["model.draft has no source"]),
    ({"tls": {"enabled": True}}, ["tls.existingSecret"]),
    ({"tls": {"existingSecret": "s"}}, ["tls.existingSecret needs tls.enabled"]),
    ({"coordinator": {"auth": {"existingSecret": "s"}}}, ["gateway.token.existingSecret"]),
    ({"target": {"autoscaling": {"minReplicas": 9}}}, ["target.autoscaling.minReplicas is 9"]),
    ({"draft": {"autoscaling": {"type": "keda"}}}, ["keda.prometheusAddress"]),
    ({"target": {"autoscaling": {"type": "hpa", "minReplicas": 0}}},
     ["target.autoscaling.minReplicas is 0"]),
    ({"draft": {"autoscaling": {"type": "hpa", "minReplicas": 0}}},
     ["draft.autoscaling.minReplicas is 0"]),
    ({"target": {"autoscaling": {"type": "hpa"}}, "draft": {"autoscaling": {"type": "keda"}},
      "keda": {"prometheusAddress": "http://p"}},
     ["target.autoscaling.type is hpa, draft.autoscaling.type is keda"]),
    ({"target": {"autoscaling": {"type": "keda"}}, "draft": {"autoscaling": {"type": "hpa"}},
      "keda": {"prometheusAddress": "http://p"}},
     ["target.autoscaling.type is keda, draft.autoscaling.type is hpa"]),
    ({"gateway": {"autoscaling": {"enabled": True, "minReplicas": 99}}},
     ["gateway.autoscaling.minReplicas is 99"]),
    ({"coordinator": {"publicTls": {"existingSecret": "s"}}},
     ["coordinator.publicTls.serverName"]),
    ({"nameOverride": "n" * 70}, ["/nameOverride"]),
    ({"fullnameOverride": "n" * 43}, ["/fullnameOverride"]),
    ({"nameOverride": "Nacre"}, ["/nameOverride"]),
    ({"commonLabels": {"app.kubernetes.io/name": "x"}}, ["/commonLabels"]),
    ({"target": {"pod": {"labels": {"app.kubernetes.io/component": "x"}}}},
     ["/target/pod/labels"]),
    ({"target": {"pdb": {"maxUnavailable": 0}}}, ["/target/pdb/maxUnavailable"]),
    ({"gateway": {"pdb": {"maxUnavailable": "0%"}}}, ["/gateway/pdb/maxUnavailable"]),
    ({"gateway": {"fleet": {"enabled": True}}}, ["coordinator.admin.enabled"]),
    ({"gateway": {"fleet": {"enabled": True}, "auth": {"existingSecret": "s"}},
      "coordinator": {"admin": {"enabled": True}}}, ["gateway.fleet.auth.existingSecret"]),
    ({"gateway": {"fleet": {"enabled": True}}, "coordinator": {"admin": {"enabled": True}},
      "tls": {"enabled": True, "existingSecret": "s"}}, ["gateway.fleet.enabled with tls"]),
    ({"model": {"name": "a", "target": {"pvc": {"claimName": ""}, "path": "/m/b"}}},
     ["model.name is a", "b"]),
    ({"gateway": {"tls": {"existingSecret": "s"}}, "routes": {"ingress": {"enabled": True}}},
     ["routes.ingress.annotations"]),
    ({"gateway": {"enabled": False}, "routes": {"ingress": {"enabled": True}}},
     ["routes.ingress.enabled needs gateway.enabled"]),
    ({"gateway": {"enabled": False},
      "routes": {"http": {"enabled": True, "parentRefs": [{"name": "g"}]}}},
     ["routes.http.enabled needs gateway.enabled"]),
    *(({"gateway": {"enabled": False, **change}}, [f"gateway.{path} needs gateway.enabled"])
      for path, change in WITHOUT_GATEWAY),
    ({"podSecurityContext": {"fsGroups": 1}}, ["/podSecurityContext", "fsGroups"]),
    ({"securityContext": {"readOnlyRootFileSystem": True}},
     ["/securityContext", "readOnlyRootFileSystem"]),
    ({"target": {"resources": {"limits": {"memories": "1Gi"}}}},
     ["/target/resources/limits", "memories"]),
    ({"draft": {"resources": {"requests": {"cpus": 1}}}},
     ["/draft/resources/requests", "cpus"]),
    ({"target": {"pod": {"affinity": {"nodeAfinity": {}}}}},
     ["/target/pod/affinity", "nodeAfinity"]),
    ({"target": {"pod": {"tolerations": [{"keys": "a"}]}}},
     ["/target/pod/tolerations/0", "keys"]),
    ({"target": {"pod": {"topologySpreadConstraints": [{"maxSkew": 1}]}}},
     ["/target/pod/topologySpreadConstraints/0", "topologyKey"]),
    ({"gateway": {"pod": {"extraEnv": [{"name": "A", "values": "b"}]}}},
     ["/gateway/pod/extraEnv/0", "values"]),
    ({"coordinator": {"pod": {"extraEnv": [{"name": "A"}, {"name": "NACRE_MAX_QUEU"}]}}},
     ["coordinator.pod.extraEnv[1].name is NACRE_MAX_QUEU", "nacre-coordinator"]),
    # Each program has its own.
    ({"gateway": {"pod": {"extraEnv": [{"name": "NACRE_MAX_QUEUE"}]}}},
     ["gateway.pod.extraEnv[0].name is NACRE_MAX_QUEUE", "nacre-gateway"]),
    ({"gateway": {"pod": {"extraEnv": [{"name": "NACRE_listen"}]}}},
     ["gateway.pod.extraEnv[0].name is NACRE_listen"]),
    ({"gateway": {"pod": {"extraEnv": [{"name": "NACRE_NO-UI"}]}}},
     ["gateway.pod.extraEnv[0].name is NACRE_NO-UI"]),
    ({"coordinator": {"pod": {"extraArgs": ["--max-queu=1"]}}},
     ["coordinator.pod.extraArgs[0] is --max-queu=1", "nacre-coordinator has no flag --max-queu"]),
    ({"gateway": {"pod": {"extraArgs": ["--no-ui", "--max-queue", "8"]}}},
     ["gateway.pod.extraArgs[1] is --max-queue", "nacre-gateway has no flag --max-queue"]),
    ({"target": {"pod": {"extraArgs": ["--Spin"]}}}, ["/target/pod/extraArgs/0", "--Spin"]),
    ({"target": {"pod": {"extraArgs": ["--help"]}}},
     ["target.pod.extraArgs[0] is --help", "nacre-target-worker has no flag --help"]),
    ({"draft": {"pod": {"extraArgs": ["--spinn=1ms"]}}},
     ["draft.pod.extraArgs[0] is --spinn=1ms", "nacre-draft-worker has no flag --spinn"]),
    ({"draft": {"pod": {"extraArgs": ["--spin"]}}},
     ["draft.pod.extraArgs[0] is --spin, but no value follows"]),
    ({"draft": {"pod": {"extraArgs": ["--spin", "--step-time=1ms"]}}},
     ["draft.pod.extraArgs[0] is --spin, but no value follows"]),
    ({"gateway": {"pod": {"extraArgs": ["--no-ui", "on"]}}},
     ["gateway.pod.extraArgs[1] is on, but no flag before it takes a value"]),
    ({"target": {"resources": {"claims": [{"name": "gpu"}]}}},
     ["target.resources.claims[0].name is gpu", "target.pod.resourceClaims"]),
    ({"gateway": {"resources": {"claims": [{"name": "a"}, {"name": "b"}]},
                  "pod": {"resourceClaims": [{"name": "a", "resourceClaimName": "c"}]}}},
     ["gateway.resources.claims[1].name is b", "gateway.pod.resourceClaims"]),
    # The coordinator reads the target's tokenizer, with its init container.
    ({"model": {"target": {"pvc": {"claimName": ""}, "initContainer": {
        "image": "i", "resources": {"claims": [{"name": "gpu"}]}}}}},
     ["model.target.initContainer.resources.claims[0].name is gpu",
      "coordinator.pod.resourceClaims"]),
    ({"target": {"pod": {"resourceClaims": [{"name": "a"}]}}},
     ["/target/pod/resourceClaims/0"]),
    ({"target": {"nodes": 3}}, ["/target/nodes"]),
    ({"target": {"nodes": 2}},
     ["target.nodes is 2, but target.flags.tensor-parallel is 0"]),
    ({"draft": {"nodes": 4, "flags": {"tensor-parallel": 2}}},
     ["draft.nodes is 4, but draft.flags.tensor-parallel is 2"]),
    ({"target": {"nodes": 2, "flags": {"tensor-parallel": 2}, "strategy": {"type": "Recreate"}}},
     ["target.nodes is 2, but target.strategy.type is Recreate"]),
    ({"target": {"nodes": 2, "gpu": {"count": 2},
                 "flags": {"backend": "cuda", "tensor-parallel": 8}}},
     ["target.flags.tensor-parallel is 8, but target.gpu.count is 2 on each of 2 nodes"]),
    ({"target": {"pod": {"extraArgs": ["--node-rank=1"]}}},
     ["target.pod.extraArgs[0] is --node-rank=1, but the chart sets --node-rank itself"]),
    ({"target": {"pod": {"resourceClaims": [{"resourceClaimName": "a"}]}}},
     ["/target/pod/resourceClaims/0", "name"]),
    ({"target": {"pod": {"resourceClaims": [{"name": "a", "claimName": "b"}]}}},
     ["/target/pod/resourceClaims/0", "claimName"]),
    ({"target": {"resources": {"claims": [{"name": 1}]}}},
     ["/target/resources/claims/0/name"]),
    ({"coordinator": {"pod": {"extraArgs": ["max-queue=1"]}}},
     ["/coordinator/pod/extraArgs/0", "max-queue=1"]),
    ({"coordinator": {"pod": {"extraArgs": ["--spin", "-max-queue=1"]}}},
     ["/coordinator/pod/extraArgs/1", "-max-queue=1"]),
    ({"target": {"resources": {"claims": [{"names": "a"}]}}},
     ["/target/resources/claims/0", "names"]),
    ({"model": {"target": {"initContainer": {"port": 1}}}},
     ["/model/target/initContainer", "port"]),
    ({"draft": {"pod": {"extraVolumes": [{"name": "a", "configmap": {}}]}}},
     ["/draft/pod/extraVolumes/0", "configmap"]),
    ({"draft": {"pod": {"extraVolumeMounts": [{"name": "a", "path": "/a"}]}}},
     ["/draft/pod/extraVolumeMounts/0"]),
    ({"target": {"autoscaling": {"behavior": {"scaleup": {}}}}},
     ["/target/autoscaling/behavior", "scaleup"]),
    ({"target": {"autoscaling": {"behavior": {"scaleUp": {"policy": []}}}}},
     ["/target/autoscaling/behavior/scaleUp", "policy"]),
    ({"keda": {"fallback": {"replica": 1}}}, ["/keda/fallback", "replica"]),
    ({"imagePullSecrets": ["regcred"]}, ["/imagePullSecrets/0"]),
    ({"imagePullSecrets": [{"name": "a"}, {"naming": "x"}]}, ["/imagePullSecrets/1", "naming"]),
    ({"networkPolicy": {"clients": [{"podSelectr": {}}]}},
     ["/networkPolicy/clients/0", "podSelectr"]),
    ({"networkPolicy": {"clients": [{"podSelector": {"matchLabel": {}}}]}},
     ["/networkPolicy/clients/0/podSelector", "matchLabel"]),
    ({"networkPolicy": {"clients": [{}]}}, ["/networkPolicy/clients/0"]),
    ({"networkPolicy": {"clients": [{"ipBlock": {"cdir": "10.0.0.0/8"}}]}},
     ["/networkPolicy/clients/0/ipBlock", "cdir"]),
    ({"networkPolicy": {"monitoring": ["monitoring"]}}, ["/networkPolicy/monitoring/0"]),
    ({"networkPolicy": {"operators": [{"namespaceSelectors": {}}]}},
     ["/networkPolicy/operators/0", "namespaceSelectors"]),
    ({"networkPolicy": {"operators": [{"podSelector": {"matchExpressions": [
        {"key": "a", "operator": "in", "values": ["b"]}]}}]}},
     ["/networkPolicy/operators/0/podSelector/matchExpressions/0/operator"]),
    ({"networkPolicy": {"extraEgress": [{"to": [{"podSelectr": {}}]}]}},
     ["/networkPolicy/extraEgress/0/to/0", "podSelectr"]),
    ({"networkPolicy": {"extraEgress": [{"ports": [{"prot": 53}]}]}},
     ["/networkPolicy/extraEgress/0/ports/0", "prot"]),
    ({"routes": {"http": {"parentRefs": [{"nme": "g"}]}}}, ["/routes/http/parentRefs/0", "nme"]),
    ({"routes": {"grpc": {"parentRefs": ["g"]}}}, ["/routes/grpc/parentRefs/0"]),
    ({"routes": {"http": {"enabled": True}}}, ["routes.http.parentRefs"]),
    ({"routes": {"grpc": {"enabled": True}}}, ["routes.grpc.parentRefs"]),
    # maxSurge is 0 by the chart's own values.
    ({"target": {"strategy": {"rollingUpdate": {"maxUnavailable": 0}}}},
     ["target.strategy.rollingUpdate", "maxSurge is 0 and maxUnavailable is 0"]),
    ({"draft": {"strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "00%"}}}},
     ["draft.strategy.rollingUpdate", "maxSurge is 0% and maxUnavailable is 00%"]),
    ({"target": {"resources": {"limits": {"memory": "4Gb"}}}},
     ["/target/resources/limits/memory", "4Gb"]),
    ({"coordinator": {"resources": {"requests": {"cpu": "1 core"}}}},
     ["/coordinator/resources/requests/cpu", "1 core"]),
    ({"gateway": {"resources": {"limits": {"memory": "-1Gi"}}}},
     ["/gateway/resources/limits/memory", "-1Gi"]),
    ({"gateway": {"resources": {"limits": {"cpu": -1}}}}, ["/gateway/resources/limits/cpu"]),
    ({"draft": {"resources": {"limits": {"example.com/fpga": "one"}}}},
     ["/draft/resources/limits/example.com", "one"]),
    ({"model": {"target": {"initContainer": {"resources": {"limits": {"memory": "4Gb"}}}}}},
     ["/model/target/initContainer/resources/limits/memory", "4Gb"]),
    # What the chart sets is not set again.
    ({"target": {"pod": {"extraArgs": ["--spin=1ms", "--listen=0.0.0.0:1"]}}},
     ["target.pod.extraArgs[1] is --listen=0.0.0.0:1, but the chart sets --listen itself"]),
    ({"draft": {"pod": {"extraArgs": ["--model", "/m"]}}},
     ["draft.pod.extraArgs[0] is --model, but the chart sets --model itself"]),
    ({"coordinator": {"pod": {"extraArgs": ["--log-level=debug"]}}},
     ["coordinator.pod.extraArgs[0] is --log-level=debug"]),
    ({"coordinator": {"auth": {"existingSecret": "s"},
                      "pod": {"extraArgs": ["--auth-tokens-file=/t"]}},
      "gateway": {"token": {"existingSecret": "s"}}},
     ["coordinator.pod.extraArgs[0] is --auth-tokens-file=/t"]),
    ({"gateway": {"chatTemplate": "x", "pod": {"extraArgs": ["--chat-template=/t"]}}},
     ["gateway.pod.extraArgs[0] is --chat-template=/t"]),
    ({"gateway": {"flags": {"ping-period": "5s"}, "pod": {"extraArgs": ["--ping-period=6s"]}}},
     ["gateway.pod.extraArgs[0] is --ping-period=6s, but gateway.flags sets --ping-period"]),
    ({"target": {"pod": {"extraEnv": [{"name": "NACRE_LISTEN", "value": "a"}]}}},
     ["target.pod.extraEnv[0].name is NACRE_LISTEN, but --listen is set"]),
    ({"target": {"pod": {"extraEnv": [{"name": "NACRE_CPUS", "value": "0"}]}}},
     ["target.pod.extraEnv[0].name is NACRE_CPUS, but --cpus is set"]),
    # What contradicts itself.
    *(({component: {"flags": {name: value}}}, [f"/{component}/flags/{name}"])
      for component, name, value in WRONG_FLAGS),
    ({"gateway": {"pod": {"extraArgs": ["--ping-period=6s", "--ping-period", "7s"]}}},
     ["gateway.pod.extraArgs[1] is --ping-period, but gateway.pod.extraArgs[0] sets"]),
    ({"gateway": {"pod": {"extraArgs": ["--ping-period=6s"],
                          "extraEnv": [{"name": "NACRE_PING_PERIOD", "value": "5s"}]}}},
     ["gateway.pod.extraEnv[0].name is NACRE_PING_PERIOD, but --ping-period is set"]),
    ({"coordinator": {"pod": {"extraArgs": ["--served-model-name=a", "--served-model-name=b"]}}},
     ["coordinator.pod.extraArgs[1] is --served-model-name=b"]),
    ({"gateway": {"pod": {"extraEnv": [{"name": "NACRE_PING_PERIOD", "value": "5s"},
                                       {"name": "NACRE_PING_PERIOD", "value": "6s"}]}}},
     ["gateway.pod.extraEnv[1].name is NACRE_PING_PERIOD"]),
    ({"gateway": {"flags": {"public-tls-ca": "/x"}}},
     ["gateway.flags.public-tls-ca needs gateway.tls.existingSecret"]),
    ({"coordinator": {"flags": {"public-tls-ca": "/x"}}},
     ["coordinator.flags.public-tls-ca needs coordinator.publicTls.existingSecret"]),
    ({"target": {"flags": {"target-tokenizer": "/x"}}}, ["target.flags.target-tokenizer"]),
    ({"gateway": {"ui": False, "pod": {"extraArgs": ["--no-ui"]}}},
     ["gateway.pod.extraArgs[0] is --no-ui, but the chart sets"]),
    ({"gateway": {"servedModelNames": ["a"], "pod": {"extraArgs": ["--served-model-name=b"]}}},
     ["gateway.pod.extraArgs[0] is --served-model-name=b, but the chart sets"]),
    ({"draft": {"policyFiles": {"svip": "/p"}, "pod": {"extraArgs": ["--policy-file=disco=/q"]}}},
     ["draft.pod.extraArgs[0] is --policy-file=disco=/q, but the chart sets"]),
    ({"model": {"target": {"pvc": {"claimName": ""}, "initContainer": {"image": "i", "resources": {
        "requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}}}},
     ["model.target.initContainer.resources.requests.cpu is 2, more than its limit, 1500m"]),
    ({"target": {"gpu": {"count": 1}, "flags": {"backend": "cuda"},
                 "resources": {"requests": {"nvidia.com/gpu": 2}}}},
     ["target.resources.requests has 2 of nvidia.com/gpu, of which the limit is 1"]),
    ({"target": {"flags": {"backend": "cuda"}}},
     ["target.flags.backend is cuda, but target.gpu.count is 0"]),
    ({"draft": {"gpu": {"count": 1}}},
     ["draft.gpu.count is 1, but draft.flags.backend is cpu"]),
    ({"target": {"gpu": {"count": 1}, "flags": {"backend": "cuda"},
                 "resources": {"limits": {"nvidia.com/gpu": 2}}}},
     ["target.gpu.count is 1, but target.resources.limits has 2 of nvidia.com/gpu"]),
    ({"draft": {"flags": {"weights": "fp8"}}}, ["draft.flags.weights is fp8"]),
    ({"draft": {"flags": {"tensor-transport": "nccl"}}},
     ["draft.flags.tensor-transport is nccl, but draft.flags.backend is cpu"]),
    ({"target": {"flags": {"tensor-parallel": 2, "tensor-parallel-transport": "nccl"}}},
     ["target.flags.tensor-parallel-transport is nccl, but target.flags.backend is cpu"]),
    ({"target": {"gpu": {"count": 1}, "flags": {"backend": "cuda", "kv-type": "int8"}}},
     ["target.flags.kv-type is int8, but target.flags.backend is cuda"]),
    ({"draft": {"gpu": {"count": 1}, "flags": {"backend": "cuda", "prefix-cache-size": "4G"}}},
     ["draft.flags.prefix-cache-size is 4G, but draft.flags.backend is cuda"]),
    ({"target": {"flags": {"prefix-cache": False, "prefix-cache-size": "4G"}}},
     ["target.flags.prefix-cache-size is 4G, but target.flags.prefix-cache is off"]),
    ({"draft": {"flags": {"prefix-cache-dir": "/cache"}}},
     ["draft.flags.prefix-cache-dir is /cache, but draft.flags.prefix-cache-size"]),
    ({"target": {"gpu": {"count": 2}, "flags": {"backend": "cuda", "tensor-parallel": 4}}},
     ["target.flags.tensor-parallel is 4, but target.gpu.count is 2"]),
    ({"target": {"resources": {"requests": {"cpu": 3}}}},
     ["target.resources.requests.cpu is 3, more than its limit, 2"]),
    ({"target": {"resources": {"requests": {"memory": 8000000000}}}},
     ["target.resources.requests.memory is 8e+09, more than its limit, 4Gi"]),
    ({"target": {"resources": {"requests": {"memory": "5E9"}, "limits": {"memory": "4e9"}}}},
     ["target.resources.requests.memory is 5E9, more than its limit, 4e9"]),
    ({"image": {"repository": ""}}, ["image.repository is empty"]),
    ({"image": {"repository": None}}, ["image.repository is empty"]),
    ({"gateway": {"resources": {"requests": {"memory": "1025Mi"}}}},
     ["gateway.resources.requests.memory is 1025Mi, more than its limit, 1Gi"]),
    ({"coordinator": {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1.4"}}}},
     ["coordinator.resources.requests.cpu is 1500m, more than its limit, 1.4"]),
    *(({"routes": {"ingress": {"host": host}}}, ["/routes/ingress/host"])
      for host in ("a b", "http://a", "a_b", "-a", "a..b", "A", "a.*.b", "a:80")),
    ({"routes": {"http": {"hostnames": ["a", "b/c"]}}}, ["/routes/http/hostnames/1"]),
    # Helm takes a value away that is null.
    *(({key: None}, ["missing", key])
      for key in ("image", "model", "log", "coordinator", "gateway", "target", "draft", "keda",
                  "tls", "networkPolicy", "monitoring", "routes", "clusterDomain", "ipFamily")),
    *(({first: {second: None}}, [f"/{first}", second])
      for first, second in (
          ("model", "name"), ("model", "draft"), ("log", "level"), ("coordinator", "auth"),
          ("coordinator", "admin"), ("coordinator", "pod"), ("coordinator", "drainSeconds"),
          ("gateway", "fleet"), ("gateway", "service"), ("gateway", "autoscaling"),
          ("target", "gpu"), ("target", "strategy"), ("draft", "pdb"), ("draft", "autoscaling"),
          ("tls", "serverName"), ("monitoring", "podMonitor"), ("routes", "ingress"))),
    ({"gateway": {"pdb": {"maxUnavailable": None}}}, ["/gateway/pdb", "maxUnavailable"]),
    ({"coordinator": {"auth": {"key": None}}}, ["/coordinator/auth", "key"]),
]
# Values that must be taken, and what of the target's pod they must make.
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
TAKEN = [
    ({"target": {"resources": {"claims": [{"name": "gpu", "request": "r"}]},
                 "pod": {"resourceClaims": [CLAIM]}}},
     lambda pod: (pod["resourceClaims"], pod["containers"][0]["resources"]["claims"]),
     ([CLAIM], [{"name": "gpu", "request": "r"}])),
    ({"target": {"pod": {"extraArgs": ["--spin=1ms", "--step-time", "5ms"]}}},
     lambda pod: pod["containers"][0]["args"][-3:], ["--spin=1ms", "--step-time", "5ms"]),
    # A switch is true or false where other flags are on or off.
    ({"gateway": {"flags": {"escape-special-tokens": True, "max-connections": 9}}},
     lambda pod: pod["containers"][0]["args"][-2:],
     ["--escape-special-tokens=true", "--max-connections=9"], "gateway"),
    ({"target": {"flags": {"prefix-cache": False, "suffix-cache": 0, "max-memory": 8000000000,
                           "hang-timeout": "1m30.5s", "tensor-parallel": "2", "spin": 0,
                           "weights": "bf16a16"}}},
     lambda pod: pod["containers"][0]["args"][-7:],
     ["--hang-timeout=1m30.5s", "--max-memory=8000000000", "--prefix-cache=off", "--spin=0",
      "--suffix-cache=0", "--tensor-parallel=2", "--weights=bf16a16"]),
    ({"gateway": {"pod": {"extraArgs": ["--tls", "--tls-server-name", "a"]}}},
     lambda pod: len(pod["containers"]), 1),
    ({"target": {"strategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}}},
     lambda pod: len(pod["containers"]), 1),
    ({"target": {"strategy": {"type": "Recreate", "rollingUpdate": {"maxUnavailable": 0}}}},
     lambda pod: len(pod["containers"]), 1),
    ({"networkPolicy": {"clients": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
                                    {"podSelector": {"matchExpressions": [
                                        {"key": "a", "operator": "In", "values": ["b"]}]},
                                     "namespaceSelector": {}}],
                        "extraEgress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}},
     lambda pod: len(pod["containers"]), 1),
    # What has a value by default may stay as it is.
    ({"gateway": {"enabled": False, "replicas": 3, "ui": False, "drainSeconds": 5,
                  "service": {"port": 8080}, "autoscaling": {"enabled": False},
                  "pdb": {"enabled": False}}}, lambda pod: len(pod["containers"]), 1),
    # Others' own are not the gateway's.
    ({"gateway": {"enabled": False}, "target": {"pod": {"nodeSelector": {"a": "b"}}},
      "coordinator": {"auth": {"existingSecret": "s"}}},
     lambda pod: pod["nodeSelector"], {"a": "b"}),
    # No draft, so no mix of autoscalers.
    ({"target": {"autoscaling": {"type": "hpa"}},
      "draft": {"enabled": False, "autoscaling": {"type": "keda"}},
      "keda": {"prometheusAddress": "http://p"}}, lambda pod: len(pod["containers"]), 1),
    ({"target": {"pod": {"extraEnv": [{"name": "NACRE_MAX_MEMORY", "value": "1G"}]}}},
     lambda pod: pod["containers"][0]["env"][-1],
     {"name": "NACRE_MAX_MEMORY", "value": "1G"}),
    ({"target": {"resources": None, "pod": {"annotations": None}}},
     lambda pod: pod["containers"][0]["resources"], {}),
    ({"target": {"gpu": {"count": 1}, "flags": {"backend": "cuda", "weights": "int4"}}},
     lambda pod: pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1),
    # GPUs come in other ways, too.
    ({"target": {"flags": {"backend": "cuda"}, "pod": {"runtimeClassName": "nvidia"}}},
     lambda pod: pod["runtimeClassName"], "nvidia"),
    ({"target": {"gpu": {"count": 1}, "pod": {"extraArgs": ["--backend=cuda"]}}},
     lambda pod: pod["containers"][0]["args"][-1], "--backend=cuda"),
    ({"target": {"resources": {"requests": {"cpu": "2000m", "memory": "4096Mi"}}}},
     lambda pod: pod["containers"][0]["resources"]["requests"]["cpu"], "2000m"),
    ({"routes": {"ingress": {"host": "*.a-b.example"}, "http": {"hostnames": ["a.b"]}}},
     lambda pod: len(pod["containers"]), 1),
]

# Values with which the notes must, or must not, warn of this.
PROMETHEUS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "m"}}}]
NO_SCRAPES = "networkPolicy.monitoring"
NOTED = [
    ({}, NO_SCRAPES, False),
    ({"monitoring": {"podMonitor": {"enabled": True}}}, NO_SCRAPES, True),
    ({"monitoring": {"podMonitor": {"enabled": True}},
      "networkPolicy": {"monitoring": PROMETHEUS}}, NO_SCRAPES, False),
    ({"monitoring": {"podMonitor": {"enabled": True}},
      "networkPolicy": {"enabled": False}}, NO_SCRAPES, False),
]


def value_files():
    return sorted((CHART / "ci").glob("values-*.yaml"))


def golden_file(values):
    return GOLDEN / (values.stem.removeprefix("values-") + ".yaml")


def source_hash(values):
    """Of what a golden file is made of, but for `files`, which others own."""
    sources = [path for path in sorted(CHART.rglob("*"))
               if path.is_file() and path.parent.name not in ("ci", "files")]
    digest = hashlib.sha256()
    for path in [*sources, values]:
        digest.update(str(path.relative_to(CHART)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def files_hash():
    """Of `files`: rules and dashboard."""
    digest = hashlib.sha256()
    for path in sorted((CHART / "files").iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def laid(base, over):
    """`over` laid over `base`; null stays, for Helm to take the chart's own value away."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: laid(base.get(key), value) for key, value in over.items()}}


def merged(base, over):
    """`over` laid over `base`, as Helm lays values: null takes a key away."""
    def without_null(values):
        if not isinstance(values, dict):
            return values
        return {key: without_null(value) for key, value in values.items() if value is not None}
    return without_null(laid(base, over))


def render(chart, values):
    """All objects, in the order of the templates."""
    # Helm's flags say yes and no where YAML 1.1 does: --set is no way to write them.
    files = chart.render(values, name="demo", namespace="serving")
    objects = []
    for name in sorted(files):
        if name.endswith("NOTES.txt"):
            continue
        objects += [item for item in yaml.safe_load_all(files[name]) if item]
    return objects


def golden_text(objects, values):
    dashboard = (CHART / "files/dashboard.json").read_text(encoding="utf-8")
    for item in objects:
        data = item.get("data", {})
        if "nacre.json" in data:
            if data["nacre.json"].rstrip() != dashboard.rstrip():
                raise SystemExit("the dashboard's ConfigMap is not its file")
            data["nacre.json"] = DASHBOARD
    head = (f"# scripts/render_chart.py made it of {values.name} and the chart.\n"
            f"# sources: {source_hash(values)}\n")
    if any(item["kind"] == "PrometheusRule" for item in objects):
        head += f"# files: {files_hash()}\n"
    return head + yaml.safe_dump_all(objects, sort_keys=False, width=100)


def flags_of_help(program):
    """The flags that the program at this path has: whether each takes a value."""
    text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    found = {name: bool(value)
             for name, value in re.findall(r"^ +--([a-z0-9-]+)( \S)?", text, re.MULTILINE)}
    if len(found) < 10:
        raise AssertionError(f"{program} --help has flags {sorted(found)} only")
    return found


def flags_text(flags):
    """The chart's list of flags. `flags`: of each component, as flags_of_help."""
    lines = ["{{/* scripts/render_chart.py --flags made it: the flags of each program. */}}",
             '{{- define "nacre.programFlags" -}}']
    for component in PROGRAMS:
        lines.append(f"{component}:")
        for kind, takes_value in (("values", True), ("switches", False)):
            names = sorted(name for name, takes in flags[component].items()
                           if takes == takes_value)
            lines += textwrap.wrap(f"{kind}: [{', '.join(names)}]", 90, break_on_hyphens=False,
                                   initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, "{{- end -}}", ""])


def schema_with_flags(text, flags):
    """The schema's text with a place for each flag that values may set. What is new takes
    any value (a switch true or false) until someone says its kind."""
    schema = json.loads(text)
    for component in PROGRAMS:
        node, at = schema["properties"][component]["properties"]["flags"], f'"{component}": {{'
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            node, at = schema["definitions"][name], f'"{name}": {{'
        known = node["allOf"][1]["properties"]
        new = sorted(set(flags[component]) - set(known) - OWN[component] - EVERYWHERE)
        start = text.index('"properties": {', text.index('"allOf": [', text.index(f"\n    {at}")))
        start += len('"properties": {')
        indent = re.match(r"\s*", text[start:])[0]
        lines = [f'{indent}"{name}": ' + ("true," if flags[component][name] else SWITCH + ",")
                 for name in new]
        text = text[:start] + "".join(lines) + text[start:]
        schema = json.loads(text)
    return text


def has_newer_parts(item):
    pod = item.get("spec", {}).get("template", {}).get("spec", {})
    return "resourceClaims" in pod or any("image" in one for one in pod.get("volumes", []))


def pods_of_groups(objects):
    """The pods that LeaderWorkerSets, which Kubernetes knows nothing of, would make."""
    for item in objects:
        if item["kind"] != "LeaderWorkerSet":
            continue
        for node in ("leader", "worker"):
            pod = item["spec"]["leaderWorkerTemplate"][f"{node}Template"]
            name = f"{item['metadata']['name']}-{node}"
            yield {"apiVersion": "v1", "kind": "Pod", **pod,
                   "metadata": {**pod["metadata"], "name": name}}


def invalid(objects):
    """What Kubernetes would refuse, one line each."""
    import kubernetes_validate

    found, checked = [], 0
    for version in VERSIONS:
        for item in [*objects, *pods_of_groups(objects)]:
            if item["kind"] in FOREIGN:
                continue
            if version < IMAGE_VOLUMES_SINCE and has_newer_parts(item):
                continue
            checked += 1
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except Exception as error:  # its kinds of errors have no common base
                found.append(f"{version} {item['kind']} {item['metadata']['name']}: "
                             f"{str(error).splitlines()[0]}")
    return found, checked


def accepted(chart, good):
    """Wrong values that were not refused, or not by their name."""
    wrong = []
    for change, names in REFUSED:
        try:
            render(chart, laid(good, change))
            wrong.append(f"{change} was not refused")
        except Exception as error:
            missing = [name for name in names if name not in str(error)]
            if missing:
                wrong.append(f"{change}: {error} does not name {missing}")
    return wrong


def refused(chart, good):
    """Right values that were refused, or whose pod is another."""
    wrong = []
    for change, part, want, *components in TAKEN:
        (component,) = components or ["target"]
        try:
            objects = render(chart, laid(good, change))
        except Exception as error:
            wrong.append(f"{change}: {error}")
            continue
        (pod,) = [item["spec"]["template"]["spec"] for item in objects
                  if item["metadata"]["name"] == f"demo-nacre-{component}"
                  and item["kind"] == "Deployment"]
        if part(pod) != want:
            wrong.append(f"{change} makes {part(pod)}")
        wrong += [f"{change}: {line}" for line in invalid(objects)[0]]
    return wrong


def misnoted(chart, good):
    """Values with which the notes do not warn, or warn of what is no fault."""
    wrong = []
    for change, warning, want in NOTED:
        files = chart.render(laid(good, change), name="demo", namespace="serving")
        (notes,) = [text for name, text in files.items() if name.endswith("NOTES.txt")]
        if (warning in notes) != want:
            wrong.append(f"{change}: the notes {'lack' if want else 'have'} {warning}:\n{notes}")
    return wrong


def check(chart, helm):
    wrong = [f"lint: {line}" for line in helm.lint(str(CHART)) if "[ERROR]" in str(line)]
    checked = 0
    for values in value_files():
        # Helm reads "off" as false (YAML 1.1), and so does this.
        objects = render(chart, yaml.safe_load(values.read_text(encoding="utf-8")))
        bad, count = invalid(objects)
        wrong += [f"{values.name}: {line}" for line in bad]
        checked += count
        text = golden_text(objects, values)
        path = golden_file(values)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != old:
            diff = difflib.unified_diff(old.splitlines(), text.splitlines(), str(path),
                                        "rendered now", lineterm="", n=2)
            wrong += [*list(diff)[:60], f"{path.name} differs: run scripts/render_chart.py"]
    good = yaml.safe_load((CHART / "ci/values-minimal.yaml").read_text(encoding="utf-8"))
    wrong += accepted(chart, good) + refused(chart, good) + misnoted(chart, good)
    print(*wrong, sep="\n")
    print(f"{len(value_files())} renders, {checked} objects checked against Kubernetes "
          f"{VERSIONS[0]} to {VERSIONS[-1]}, {len(REFUSED)} wrong values, {len(wrong)} faults")
    return 1 if wrong else 0


def main():
    if sys.argv[1:2] == ["--flags"] and len(sys.argv) == 3:
        programs = pathlib.Path(sys.argv[2])
        flags = {component: flags_of_help(programs / program)
                 for component, program in PROGRAMS.items()}
        FLAGS.write_text(flags_text(flags), encoding="utf-8")
        SCHEMA.write_text(schema_with_flags(SCHEMA.read_text(encoding="utf-8"), flags),
                          encoding="utf-8")
        print(FLAGS.relative_to(ROOT), SCHEMA.relative_to(ROOT), sep="\n")
        return 0
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__)
        return 2
    import helm_python as helm

    with helm.Chart.load(str(CHART)) as chart:
        if sys.argv[1:]:
            return check(chart, helm)
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for values in value_files():
            objects = render(chart, yaml.safe_load(values.read_text(encoding="utf-8")))
            golden_file(values).write_text(golden_text(objects, values), encoding="utf-8")
            print(golden_file(values).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
