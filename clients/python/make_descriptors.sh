#!/usr/bin/env bash
# Makes nacre/nacre.desc, the messages of proto/inference.proto and of what it
# imports, as data: the client has no generated code.
#
#   make_descriptors.sh           writes it
#   make_descriptors.sh --check   exit 1 where the protos have changed since
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
readonly PROTOS=$here/../../proto DESCRIPTORS=$here/nacre/nacre.desc

made=$(mktemp)
trap 'rm -f "$made"' EXIT
protoc --proto_path="$PROTOS" --include_imports --descriptor_set_out="$made" \
  inference.proto
if [[ ${1:-} == --check ]]; then
  cmp "$made" "$DESCRIPTORS" || {
    echo "nacre.desc is not that of proto/: run clients/python/make_descriptors.sh"
    exit 1
  }
else
  cat "$made" > "$DESCRIPTORS"
fi
