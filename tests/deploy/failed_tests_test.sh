#!/usr/bin/env bash
# scripts/failed_tests.sh names each test that failed and what it failed of, and
# no other.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/Testing/Temporary"
readonly LOG=$work/Testing/Temporary/LastTest.log
# test_of NAME VERDICT: its part of the log, with the output on stdin.
count=0
test_of() {
  count=$((count + 1))
  printf '%s/9 Testing: %s\n%s/9 Test: %s\nOutput:\n----------\n' \
    "$count" "$1" "$count" "$1"
  cat
  printf '<end of output>\nTest time = 1 sec\n----------\n%s\n"%s" end time: x\n' \
    "$2" "$1"
}
{
  printf '[ RUN      ] A.B\nf.cc:7: Failure\nactual: 3\n[  FAILED  ] A.B (3 ms)\n' |
    test_of red_test "Test Failed."
  printf 'f.cc:9: Failure, as expected of it\n[       OK ] C.D\n' |
    test_of green_test "Test Passed."
  printf 'one\nthere is no server\n' | test_of script_test "Test Failed."
  test_of silent_test "Test Failed." </dev/null
} >"$LOG"

expected='--- red_test
f.cc:7: Failure
actual: 3
[  FAILED  ] A.B (3 ms)
--- script_test
there is no server
--- silent_test
(it printed nothing)'
told=$(scripts/failed_tests.sh "$work")
[[ "$told" == "$expected" ]] || {
  diff <(echo "$expected") <(echo "$told")
  exit 1
}
if scripts/failed_tests.sh "$work/none" 2>/dev/null; then
  echo "a missing log is no error"
  exit 1
fi
echo "passed"
