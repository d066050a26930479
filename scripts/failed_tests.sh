#!/usr/bin/env bash
# What the tests of the last ctest run in a build tree failed of: a few lines
# each, to stand last in a log of which only the end is kept.
#
#   scripts/failed_tests.sh BUILD
set -euo pipefail
tree=${1:?"usage: scripts/failed_tests.sh BUILD"}
log=$tree/Testing/Temporary/LastTest.log
[[ -f "$log" ]] || { echo "there is no $log" >&2; exit 1; }
# GoogleTest's failures with what was expected, its list of failed tests, what a
# sanitizer found, and what a script or a crash said last.
awk '
  /^[0-9]+\/[0-9]+ Testing: / {
    name = $3; count = 0; after = 0; failed = 0; last = ""
  }
  { text = $0 }
  text ~ /: Failure$/ || text ~ /^(ERROR|WARNING|SUMMARY): .*Sanitizer/ ||
    text ~ /runtime error:/ { after = 6 }
  text ~ /^\[  FAILED  \] [A-Za-z]/ { after = 1 }
  after > 0 {
    after--
    if (count < 40) lines[name, count++] = text
  }
  /^<end of output>/ { end = last }
  text == "Output:" { text = "(it printed nothing)" }
  text !~ /^(-+|<end of output>)?$/ { last = text }
  /^Test Failed\.|^Test timed out|^Exception/ { failed = 1 }
  /^"[^"]*" end time:/ && failed {
    print "--- " name
    for (i = 0; i < count; i++) print substr(lines[name, i], 1, 300)
    if (count == 0) print substr(end, 1, 300)
  }
' "$log"
