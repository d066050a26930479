#!/usr/bin/env bash
# clang-format of every source.
source "$(dirname "$0")/common.sh"

clang-format --version
sources '*.h' '*.cc' '*.cu' '*.cuh' '*.proto' |
  xargs -0 clang-format --dry-run -Werror || {
  echo "not formatted as above: run make format"
  exit 1
}
