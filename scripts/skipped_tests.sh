#!/usr/bin/env bash
# What skipped itself in the last ctest run of a build tree, and why: ctest counts
# a program as passed whose cases are skipped. (Its SKIP_REGULAR_EXPRESSION would
# hide a case that fails beside one that is skipped.) Programs that skip as a whole
# (SKIP_RETURN_CODE) ctest names itself.
#
#   scripts/skipped_tests.sh BUILD
set -euo pipefail
tree=${1:?"usage: scripts/skipped_tests.sh BUILD"}
log=$tree/Testing/Temporary/LastTest.log
[[ -f "$log" ]] || { echo "there is no $log" >&2; exit 1; }
# A line for each program and reason. Cases of GoogleTest with the reason before
# them; of Python's unittest their number.
awk '
  function add(case_name, count) {
    key = name ": " reason
    if (!(key in counts)) { keys[++num_keys] = key; first[key] = case_name }
    counts[key] += count
    names[key] = name; reasons[key] = reason
  }
  /^[0-9]+\/[0-9]+ Testing: / { name = $3; reason = ""; is_next = 0 }
  is_next { reason = $0; is_next = 0 }
  /^[^ ]+:[0-9]+: Skipped$/ { is_next = 1 }
  /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ {
    sub(/,$/, "", $4)
    add($4, 1)
    reason = ""
  }
  /^OK \(.*skipped=[0-9]+/ {
    match($0, /skipped=[0-9]+/)
    reason = "of Python"
    add("cases", substr($0, RSTART + 8, RLENGTH - 8))
  }
  END {
    for (i = 1; i <= num_keys; i++) {
      key = keys[i]
      more = counts[key] > 1 ? " and " counts[key] - 1 " more" : ""
      if (first[key] == "cases") more = " (" counts[key] ")"
      print "skipped: " names[key] ": " first[key] more ": " \
        substr(reasons[key] == "" ? "no reason given" : reasons[key], 1, 200)
    }
  }
' "$log"
