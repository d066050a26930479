#!/usr/bin/env bash
# Runs every benchmark program of a build tree, one after another so that they
# do not disturb each other.   usage: scripts/bench.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
shopt -s nullglob
programs=("$build"/bin/bench_*)
if ((${#programs[@]} == 0)); then
  echo "bench: error: no benchmark was built under $build" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  [[ -f "$program" && -x "$program" ]] || continue
  echo "== $(basename "$program")"
  "$program"
done
