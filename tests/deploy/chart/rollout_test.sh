#!/usr/bin/env bash
# rollout_test.py: $1 is the folder of the programs, the rest names its tests. Ends
# with 77 where Python lacks what it takes: it is skipped then.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# A proxy knows no loopback addresses.
unset http_proxy https_proxy grpc_proxy HTTP_PROXY HTTPS_PROXY

for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import grpc, google.protobuf, yaml' 2>/dev/null; then
    NACRE_PROGRAMS=$1 NACRE_MODELS=models PYTHONDONTWRITEBYTECODE=1 \
      exec "$candidate" tests/deploy/chart/rollout_test.py "${@:2}"
  fi
done
echo "SKIPPED: no python3 has grpc and yaml; scripts/install_deps.sh --dev installs them"
exit 77
