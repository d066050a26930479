#!/usr/bin/env bash
# The rules for autoscalers are valid and ask for what they should
# (autoscaling_test.yaml), and they read only metrics that docs/metrics.md has.
# Ends with 77 where there is no promtool: it is skipped then.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

readonly RULES=deploy/prometheus/autoscaling.yaml

promtool=$(command -v promtool) || {
  echo "SKIPPED: there is no promtool; scripts/install_deps.sh --dev installs it"
  exit 77
}
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

"$promtool" check rules "$RULES" || fail "the rules are not valid"
"$promtool" test rules tests/deploy/autoscaling_test.yaml ||
  fail "a rule does not ask for what it should"
names=$(grep -o 'nacre_[a-z_]*' "$RULES" | sort -u)
(($(wc -l <<<"$names") >= 6)) || fail "these metrics were found: $names"
for name in $names; do
  grep -q "^| \`$name\` |" docs/metrics.md ||
    fail "docs/metrics.md does not have $name"
done

((failures == 0)) || exit 1
echo "passed"
