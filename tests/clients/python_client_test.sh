#!/usr/bin/env bash
# The Python client against a fake coordinator, and whether its messages are those
# of proto/. Ends with 77 where Python has no gRPC: it is skipped then.
set -euo pipefail
cd "$(dirname "$0")/../../clients/python"

# The first python3 of the path need not be Debian's.
python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import grpc, google.protobuf' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[[ -n "$python" ]] || {
  echo "SKIPPED: no python3 has grpc; scripts/install_deps.sh --dev installs it"
  exit 77
}
./make_descriptors.sh --check
PYTHONDONTWRITEBYTECODE=1 "$python" -m unittest discover -s tests -t tests \
  -p "${PYTHON_CLIENT_TESTS:-test_[!s]*.py}"
