#!/usr/bin/env bash
# What may include what, sizes of files (tools/check_layout.py); whether places
# of the product say the same (tools/like_lines.py); whether what the documents
# point to is there (tools/check_links.py); the plans of .ci/run; shell scripts
# (shellcheck, and whether one ends a pipe early); whether the sources can be
# configured without tests, as some stages in turn do.
source "$(dirname "$0")/common.sh"

python3 tools/check_layout.py --self-test
python3 tools/check_layout.py
python3 tools/like_lines.py --self-test
python3 tools/like_lines.py
python3 tools/check_links.py --self-test
python3 tools/check_links.py
python3 .ci/plan.py --self-test
sources '*.sh' .ci/run | xargs -0 shellcheck --external-sources --source-path=SCRIPTDIR
# grep -q stops reading at the first match. What still writes into the pipe then
# ends with an error, which pipefail hands on: now and then, on busy machines.
if sources '*.sh' .ci/run | xargs -0 grep -PzoH '\|\s*grep( -\S+)* -[a-zA-Z]*[qm]'; then
  echo "grep -q and grep -m end a pipe early: read a file or a string"
  exit 1
fi
configured=$(mktemp -d)
trap 'rm -rf "$configured"' EXIT
cmake --preset fuzz -B "$configured" --log-level=WARNING
