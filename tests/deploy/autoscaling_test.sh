#!/usr/bin/env bash
# The rules for autoscalers are valid and ask for what they should
# (autoscaling_test.yaml), and they read only metrics that docs/metrics.md has.
source "$(dirname "$0")/promtool.sh"

readonly RULES=deploy/prometheus/autoscaling.yaml

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
