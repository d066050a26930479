#!/usr/bin/env bash
# The tests of `make test`, several times in a row, beside busy loops of equal
# priority: what passes on a quiet machine only shows here. By hand; minutes to
# an hour a run. Build first (`make test`).
#
#   scripts/busy_test.sh [RUNS] [-- CTEST_ARGUMENT...]
#
#   RUNS             3, unless told otherwise
#   CTEST_ARGUMENT   chooses tests, as in `-- --tests-regex storm`
#
#   NACRE_BUSY_LOOPS   how many loops run beside the tests (4)
#   BUILD, TEST_JOBS   as for make: the tree (build) and the tests at once (twice
#                      the number of cores)
#
# Says which tests failed in which run. Exit status: 0 where each run passed, 1
# where a test failed, 2 where nothing could be run.
set -uo pipefail

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
}

runs=3
case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
  --) ;;
  '') ;;
  *)
    if ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
      usage >&2
      exit 2
    fi
    runs=$1
    shift
    ;;
esac
if [[ ${1:-} == -- ]]; then
  shift
elif (($# > 0)); then
  usage >&2
  exit 2
fi

cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
jobs=${TEST_JOBS:-$((2 * $(nproc)))}
loops=${NACRE_BUSY_LOOPS:-4}
if [[ ! -f $build/CTestTestfile.cmake ]]; then
  echo "$build holds no tests: run make test first" >&2
  exit 2
fi
# The labels that `make test` leaves out.
skipped=$(sed -n 's/^SKIPPED_LABELS := //p' Makefile)

busy=()
stop_loops() { ((${#busy[@]} == 0)) || kill "${busy[@]}" 2>/dev/null; }
trap stop_loops EXIT
trap 'exit 2' INT TERM
for ((i = 0; i < loops; ++i)); do
  (while :; do :; done) &
  busy+=($!)
done

folder=$(mktemp -d) || exit 2
trap 'stop_loops; rm -rf "$folder"' EXIT
failed_runs=0
for ((run = 1; run <= runs; ++run)); do
  echo "-- run $run of $runs, beside $loops busy loops"
  log=$folder/$run
  ctest --test-dir "$build" --output-on-failure --parallel "$jobs" \
    --label-exclude "$skipped" --no-tests=error "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  ((status == 0)) && continue
  ((++failed_runs))
  grep -q 'tests passed' "$log" || exit 2
done

echo "-- $((runs - failed_runs)) of $runs runs passed"
for ((run = 1; run <= runs; ++run)); do
  # Lines like "  17 - storm_test (Failed)", after ctest's own heading.
  sed -n '/The following tests FAILED:/,$s/^[[:space:]]*[0-9]* - /run '"$run"': /p' \
    "$folder/$run"
done
((failed_runs == 0))
