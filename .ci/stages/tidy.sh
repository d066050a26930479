#!/usr/bin/env bash
# clang-tidy over folders, core first, as far as its time goes.
source "$(dirname "$0")/common.sh"

readonly TIDY_FOLDERS=(speculation common)
readonly TIDY_SECONDS=${NACRE_TIDY_SECONDS:-300}

cmake --preset release --log-level=NOTICE
mapfile -d '' -t files < <(sources "${TIDY_FOLDERS[@]/%//*.cc}")
echo "clang-tidy on ${#files[@]} files, at most $TIDY_SECONDS s"
status=0
found=$(mktemp -u)
export found
# Every finding is an error, also where time runs out after it; lines that count
# muted warnings are dropped.
# shellcheck disable=SC2016 # "$@" is the inner shell's.
printf '%s\0' "${files[@]}" |
  timeout "$TIDY_SECONDS" xargs -0 -n 4 -P "$JOBS" bash -c '
    clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option "$@" ||
      { touch "$found"; exit 1; }' tidy 2> >(grep -v 'warnings generated' >&2) ||
  status=$?
if [[ -e "$found" ]]; then
  rm -f "$found"
  exit 1
fi
if ((status == 124)); then
  echo "clang-tidy: out of time after $TIDY_SECONDS s, not all files were read"
  exit "$PARTIAL"
fi
exit "$status"
