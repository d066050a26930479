#!/usr/bin/env bash
# What may include what, sizes of files (tools/check_layout.py); whether places
# of the product say the same (tools/like_lines.py); whether what the documents
# point to is there (tools/check_links.py); the plans of .ci/run; shell scripts
# (shellcheck); whether the sources can be configured without tests, as some stages
# in turn do.
source "$(dirname "$0")/common.sh"

python3 tools/check_layout.py --self-test
python3 tools/check_layout.py
python3 tools/like_lines.py --self-test
python3 tools/like_lines.py
python3 tools/check_links.py --self-test
python3 tools/check_links.py
python3 .ci/plan.py --self-test
sources '*.sh' .ci/run | xargs -0 shellcheck --external-sources --source-path=SCRIPTDIR
configured=$(mktemp -d)
trap 'rm -rf "$configured"' EXIT
cmake --preset fuzz -B "$configured" --log-level=WARNING
