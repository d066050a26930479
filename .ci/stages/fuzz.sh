#!/usr/bin/env bash
# Each libFuzzer target for a minute, from the committed corpus.
source "$(dirname "$0")/common.sh"

readonly FUZZ_SECONDS=${NACRE_FUZZ_SECONDS:-60}

# fuzz_one PROGRAM: starts from the committed corpus, writes finds elsewhere.
fuzz_one() {
  local program=$1 name seeds work
  name=$(basename "$program")
  work=build-fuzz/work/$name
  mkdir -p "$work/corpus"
  seeds=tests/fuzz/corpus/$name
  [[ -n "$(ls "$seeds" 2>/dev/null)" ]] || {
    echo "fuzz $name: FAILED: $seeds has no seeds"
    return 1
  }
  if "$program" -max_total_time="$FUZZ_SECONDS" -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$work/" \
    "$work/corpus" "$seeds" >"$work/log" 2>&1; then
    echo "fuzz $name: $(grep -E 'number_of_executed_units' "$work/log" |
      grep -oE '[0-9]+$') inputs in $FUZZ_SECONDS s, nothing found"
  else
    tail -n 60 "$work/log"
    local crash
    for crash in "$work"/{crash,leak,oom,timeout}-*; do
      [[ -f "$crash" ]] && echo "$crash: $(base64 -w0 "$crash" | head -c 4000)"
    done
    echo "fuzz $name: FAILED"
    return 1
  fi
}

cmake --preset fuzz --log-level=NOTICE
cmake --build build-fuzz --parallel "$JOBS" --target tests/fuzz/all
export -f fuzz_one
export FUZZ_SECONDS
[[ -d build-fuzz/fuzz ]] || {
  echo "no fuzz target was built"
  exit 1
}
# shellcheck disable=SC2016 # $1 is the inner shell's.
find build-fuzz/fuzz -maxdepth 1 -type f -executable -print0 | sort -z |
  xargs -0 --no-run-if-empty -n 1 -P "$JOBS" bash -uc 'fuzz_one "$1"' fuzz
drop_tree build-fuzz
