#!/usr/bin/env bash
# fleet/kills.py for a minute: $1 is the folder of the programs. Ends with 77 where
# Python lacks what it takes: it is skipped then.
set -euo pipefail
cd "$(dirname "$0")/../.."
# A proxy knows no loopback addresses.
unset http_proxy https_proxy grpc_proxy HTTP_PROXY HTTPS_PROXY

for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import grpc, google.protobuf' 2>/dev/null; then
    PYTHONDONTWRITEBYTECODE=1 exec "$candidate" tests/clients/fleet/kills.py \
      --programs "$1" --models models --seconds 60 --patient
  fi
done
echo "SKIPPED: no python3 has grpc; scripts/install_deps.sh --dev installs it"
exit 77
