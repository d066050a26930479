# shellcheck shell=bash disable=SC2154
# Shared by the reports on paced devices; to be sourced. The caller sets OUT, NACRE,
# prompts, max_tokens, repeat and, before `bench`, cluster (flags of the processes).

# Of a target step, and its prices by rows. Those of a draft are the same divided by
# the cost ratio.
readonly TARGET_MS=30 ROW_PRICES="1:1 8:1.02 16:1.03"

step_times() {  # MS
  local price
  for price in $ROW_PRICES; do
    awk -v rows="${price%%:*}" -v factor="${price##*:}" -v ms="$1" \
      'BEGIN { printf "%d:%.4f\n", rows, ms * factor }'
  done | paste -sd,
}

# paced RATIO: the flags that pace target and drafts.
paced() {
  echo "--target-step-time $(step_times "$TARGET_MS") --draft-step-time" \
    "$(step_times "$(awk "BEGIN { print $TARGET_MS / $1 }")")"
}

# bench NAME FILE FLAG...: to OUT/NAME.json, which is written last.
bench() {
  local name=$1 file=$2
  shift 2
  [[ -f "$OUT/$name.json" ]] && return
  echo "== $name"
  "$NACRE" bench "${cluster[@]}" --prompts "tests/data/$file.jsonl" \
    --limit "$prompts" --max-tokens "$max_tokens" --ignore-eos \
    --repeat "$repeat" --json "$OUT/$name.json" "$@"
}
