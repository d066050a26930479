#!/usr/bin/env bash
# The alerts are valid, each of them fires where it should and is silent where all
# is well (alerts_test.yaml), and docs/operations.md has a word on each.
source "$(dirname "$0")/promtool.sh"

readonly ALERTS=deploy/prometheus/alerts.yaml
readonly CASES=tests/deploy/alerts_test.yaml

"$promtool" check rules "$ALERTS" || fail "the rules are not valid"
"$promtool" test rules "$CASES" || fail "an alert does not do what it should"
names=$(sed -n 's/^ *- alert: //p' "$ALERTS")
(($(wc -l <<<"$names") >= 10)) || fail "these alerts were found: $names"
for name in $names; do
  # Silent in the first case, on a fleet that is well.
  grep -q "{eval_time: [0-9]*m, alertname: $name}" "$CASES" ||
    fail "$name is not tested to be silent"
  [[ "$(grep -A 1 "alertname: $name\$" "$CASES")" == *exp_alerts:* ]] ||
    fail "$name is not tested to fire"
  grep -q "^| \`$name\` |" docs/operations.md ||
    fail "docs/operations.md does not say what to do about $name"
done

((failures == 0)) || exit 1
echo "passed"
