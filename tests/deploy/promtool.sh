# shellcheck shell=bash disable=SC2034 # Tests use $promtool.
# What the tests of Prometheus rules share; sourced. $promtool is the program, and
# fail counts. Ends the test with 77 where there is none: it is skipped then.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

promtool=$(command -v promtool) || {
  echo "SKIPPED: there is no promtool; scripts/install_deps.sh --dev installs it"
  exit 77
}
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
