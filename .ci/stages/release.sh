#!/usr/bin/env bash
# gcc, -Wall -Wextra -Werror: everything is built, every test runs.
source "$(dirname "$0")/common.sh"

make test
# The tests of a GPU are built, and left out also where there is one.
mapfile -t of_gpu < <(named_tests build --label-regex '^cuda$')
((${#of_gpu[@]} == 0)) || echo "not run: what needs a GPU: ${of_gpu[*]}"
# ctest does not count a skipped test as failed.
command -v promtool >/dev/null || {
  echo "there is no promtool: the alerts were not tested"
  exit 1
}
/usr/bin/python3 -c 'import grpc, yaml, jsonschema' || {
  echo "/usr/bin/python3 has no grpc, yaml or jsonschema: the Python client or the" \
    "Helm chart was not tested"
  exit 1
}
