#!/usr/bin/env bash
# .ci/run with stages that do nothing: which it runs in which order, what its
# last line says, and what it remembers. (.ci/plan.py tests its arithmetic.)
set -euo pipefail
cd "$(dirname "$0")/../.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/.ci/stages"
cp .ci/run .ci/plan.py "$scratch/.ci"
cp .ci/stages/common.sh "$scratch/.ci/stages"
export XDG_CACHE_HOME=$scratch/cache
readonly PASSED=$scratch/cache/nacre-ci/passed
readonly ALWAYS=(deps format layout release quickstart clients cuda)
readonly LONG="the long tests: make slow."

# stage NAME [STATUS LAST_LINE]: makes a stage that notes that it ran.
stage() {
  printf '#!/bin/sh\necho %s >>ran\necho "%s"\nexit %s\n' "$1" "${3:-}" "${2:-0}" \
    >"$scratch/.ci/stages/$1.sh"
  chmod +x "$scratch/.ci/stages/$1.sh"
}

# run STATUS ARGUMENT...: sets `last`, the last line, and `ran`, the stages.
run() {
  local expected=$1 status=0
  shift
  rm -f "$scratch/ran"
  last=$(cd "$scratch" && .ci/run "$@" 2>&1 | tail -n 1; exit "${PIPESTATUS[0]}") ||
    status=$?
  ran=$(tr '\n' ' ' <"$scratch/ran")
  ((status == expected)) || fail "status $status, not $expected: $last"
}

# The seconds that a run takes are 0, or 1 on a busy machine.
says() {
  local text
  text=$(sed -E 's/ in [0-9]+ s:/:/; s/ after [0-9]+ s$//' <<<"$last")
  [[ "$text" == "$1" ]] || fail "\"$text\" is not \"$1\""
}
ran() { [[ "$ran" == "$* " ]] || fail "it ran $ran, not $*"; }
fail() {
  echo "ci_run_test: $*" >&2
  exit 1
}

for name in "${ALWAYS[@]}" asan tsan fuzz tidy aarch64 training chart; do
  stage "$name"
done
git -C "$scratch" init --quiet
commit() {
  git -C "$scratch" -c user.name=test -c user.email=test@localhost commit \
    --quiet --allow-empty --message x
}
commit

# On a new machine the number of commits, 1, says which comes first.
run 0
ran "${ALWAYS[@]}" tsan fuzz tidy aarch64 training asan
says "CI: passed: ${ALWAYS[*]} tsan fuzz tidy aarch64 training asan. By name only: chart; $LONG"

# What is left out is first in the next run, and one run after the other takes
# what has waited longest.
rm "$PASSED"
NACRE_CI_SECONDS=1300 run 0
ran "${ALWAYS[@]}" tsan fuzz tidy aarch64 training
says "CI: passed: ${ALWAYS[*]} tsan fuzz tidy aarch64 training. NOT RUN for want of time: asan; \
such runs that cover all on this machine: never. By name only: chart; $LONG"
[[ "$(sed 's/ .*//' "$PASSED" | tr '\n' ' ')" == "tsan fuzz tidy aarch64 training " ]] ||
  fail "remembered: $(<"$PASSED")"
run 0
[[ "$ran" == "${ALWAYS[*]} asan "* ]] || fail "asan waited, but it ran $ran"

# Stages by name, one that passed in part, and one that could run nothing.
run 0 format chart
ran format chart
says "CI: passed: format chart."
stage tidy 75 "clang-tidy: out of time"
stage clients 76 "clients: NOT RUN: PyPI is not reached"
run 0 tidy clients format
says "CI: passed: format. NOT RUN, as what they need is missing: clients. Run in part: tidy."
stage tidy 76
run 76 tidy format
ran tidy
says "CI: stage tidy FAILED (exit status 76)"

# One that could run nothing has had its turn, but is not noted as passed.
stage clients
stage tidy
stage training 76 "training: NOT RUN: PyPI is not reached"
rm "$PASSED"
run 0
says "CI: passed: ${ALWAYS[*]} tsan fuzz tidy aarch64 asan. NOT RUN, as what they need \
is missing: training. By name only: chart; $LONG"
grep -qE '^training [0-9]+ nothing$' "$PASSED" || fail "remembered: $(<"$PASSED")"
if grep -v '^training ' "$PASSED" | grep nothing; then
  fail "remembered: $(<"$PASSED")"
fi
# So another that has waited longer comes first.
printf '%s\n' "training 3 nothing" "asan 4" "tsan 4" "fuzz 4" "tidy 2" "aarch64 4" \
  >"$PASSED"
run 0
[[ "$ran" == "${ALWAYS[*]} tidy training "* ]] || fail "tidy waited, but it ran $ran"

# The first that fails ends the run; those before it are remembered.
stage training
stage asan 3
rm "$PASSED"
commit && commit && commit  # 4: aarch64 comes first
run 3
ran "${ALWAYS[@]}" aarch64 training asan
says "CI: stage asan FAILED (exit status 3)"
[[ "$(sed 's/ .*//' "$PASSED" | tr '\n' ' ')" == "aarch64 training " ]] ||
  fail "remembered: $(<"$PASSED")"
if (cd "$scratch" && .ci/run format nothing >/dev/null 2>&1); then
  fail "a stage that there is not was run"
fi
echo "ci_run_test: passed"
