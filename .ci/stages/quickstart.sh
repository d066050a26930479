#!/usr/bin/env bash
# The README's first command, with a short run.
source "$(dirname "$0")/common.sh"

NACRE_QUICKSTART_SMOKE=1 make quickstart
