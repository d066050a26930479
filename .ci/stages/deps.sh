#!/usr/bin/env bash
# Installs what every other stage needs.
source "$(dirname "$0")/common.sh"

scripts/install_deps.sh --dev
