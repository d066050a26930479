#!/usr/bin/env bash
# The Python client against a fake coordinator, and whether its messages are those
# of proto/. Ends with 77 where Python has no gRPC: it is skipped then.
set -euo pipefail
cd "$(dirname "$0")/../../clients/python"

python3 -c 'import grpc, google.protobuf' 2>/dev/null || {
  echo "SKIPPED: there is no grpc module; scripts/install_deps.sh --dev installs it"
  exit 77
}
./make_descriptors.sh --check
PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -s tests -t tests \
  -p "${PYTHON_CLIENT_TESTS:-test_[!s]*.py}"
