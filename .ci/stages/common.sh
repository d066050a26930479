# shellcheck shell=bash disable=SC2034 # Stages use the variables.
# What the stages share. A stage is a script of its own: .ci/stages/NAME.sh runs
# it alone. Exit statuses: 0 passed, 75 passed as far as its time went (what is
# missing stands in its last line), 76 could run nothing (why, in its last line),
# anything else failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly PARTIAL=75 NOTHING=76
# What runs on this machine note for the next: when stages in turn had
# theirs, and what clang-tidy has yet to read.
readonly NOTES=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/nacre-ci
readonly PASSED_FILE=$NOTES/passed UNREAD_FILE=$NOTES/tidy_unread
JOBS=$(nproc)
# Objects of another clone of the same sources count too.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
export CTEST_OUTPUT_ON_FAILURE=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1\
:suppressions=$PWD/scripts/ubsan_suppressions.txt"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1\
:suppressions=$PWD/scripts/tsan_suppressions.txt"

sources() { git ls-files -z -- "$@"; }

# named_tests TREE CTEST_ARGUMENT...: the names of the tests that these choose.
named_tests() {
  ctest --test-dir "$1" --show-only "${@:2}" | sed -n 's/^ *Test *#[0-9]*: //p'
}

# test_chosen TREE CTEST_ARGUMENT...: builds the tests that these choose, and runs
# them. A test and its target have one name: nothing else is built.
test_chosen() {
  local tree=$1 targets=()
  shift
  mapfile -t targets < <(named_tests "$tree" "$@")
  cmake --build "$tree" --parallel "$JOBS" --target "${targets[@]}"
  run_tests "$tree" "$@"
}

# run_tests TREE CTEST_ARGUMENT...: of what is built. Says what failed of what, or
# else what skipped itself.
run_tests() {
  local tree=$1
  shift
  ctest --test-dir "$tree" --parallel "$JOBS" --no-tests=error "$@" || {
    scripts/failed_tests.sh "$tree"
    return 1
  }
  scripts/skipped_tests.sh "$tree"
}

# make_venv NAME FOLDER PIP_ARGUMENT...: makes an environment with what PyPI has, for
# the stage of this name. Where it cannot be had, the stage ends with NOTHING: what
# PyPI or its mirror lacks at the moment is no fault of ours.
make_venv() {
  local name=$1 venv=$2
  shift 2
  if ! python3 -m venv "$venv"; then
    echo "$name: NOT RUN: python3 has no venv (scripts/install_deps.sh --dev)"
    exit "$NOTHING"
  fi
  if ! timeout 60 "$venv/bin/python" -m pip index versions setuptools \
    >/dev/null 2>&1; then
    echo "$name: NOT RUN: PyPI is not reached"
    exit "$NOTHING"
  fi
  if ! timeout 600 "$venv/bin/python" -m pip install --quiet "$@"; then
    echo "$name: NOT RUN: the packages of PyPI could not be installed"
    exit "$NOTHING"
  fi
}

# Some trees are large, and ccache or PyPI makes them again: a CI machine drops
# them, a developer keeps them.
drop_tree() {
  if [[ "${CI:-}" == true ]]; then rm -rf "$1"; fi
}
