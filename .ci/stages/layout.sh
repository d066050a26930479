#!/usr/bin/env bash
# What may include what, sizes of files (tools/check_layout.py).
source "$(dirname "$0")/common.sh"

python3 tools/check_layout.py --self-test
python3 tools/check_layout.py
