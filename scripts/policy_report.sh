#!/usr/bin/env bash
# Every length policy in every method on the bundled pair, made slower at three
# cost ratios, on two kinds of prompts; then exact match beside the ratio test.
# A page (HTML), the numbers (JSON) and a table for each run in OUT;
# docs/policy_report.md tells what came of it.
#
# Networks are trained once, with the bundled pair: `nacre inflate` changes no
# output, so they know the slower pairs as well. What decides speed is tuned on
# each pair, with prompts that nothing else sees.
#
#   scripts/policy_report.sh OUT         build first: make build; about an hour
#   scripts/policy_report.sh OUT learn   only the networks
# What OUT has is not made again.
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
# A target step of about 20 ms on one core. Drafts by their layers: c = T_target /
# T_draft of about 5, 10 and 20 (the pages say what it was).
readonly TARGET_LAYERS=130 TARGET_INTERMEDIATE=688
readonly DRAFTS=(c5:85 c10:40 c20:17) DRAFT_INTERMEDIATE=344
readonly PROMPT_FILES=(gsm8k_100 humaneval)
readonly LEARNED=(disco specdec++ cali-ts)
# What is tried of each; the fastest in sd is measured in all methods.
readonly CANDIDATES=(
  constant:n=1 constant:n=2 constant:n=3 constant:n=4 constant:n=6 constant:n=9
  confidence:threshold=0.3 confidence:threshold=0.5 confidence:threshold=0.7
  svip:h=0.2 svip:h=0.3 svip:h=0.4
  disco:threshold=0.3 disco:threshold=0.5 disco:threshold=0.7
  specdec++:threshold=0.7 specdec++:threshold=0.9 specdec++:threshold=0.97
  cali-ts:sigma-model=0.1 cali-ts:sigma-model=0.4)
# Of each file: the first are measured, the last tune.
prompts=${NACRE_REPORT_PROMPTS:-2}
tune_prompts=${NACRE_REPORT_TUNE_PROMPTS:-1}
max_tokens=${NACRE_REPORT_TOKENS:-64}
repeat=${NACRE_REPORT_REPEAT:-3}
tune_repeat=${NACRE_REPORT_TUNE_REPEAT:-1}
learn_prompts=${NACRE_REPORT_LEARN_PROMPTS:-80}
# -----------------------------------------------------------------------------

readonly NACRE=build/bin/nacre
readonly OUT=${1:?usage: scripts/policy_report.sh OUT [learn]}
readonly STAGE=${2:-all}
mkdir -p "$OUT"

inflate() {  # NAME SOURCE LAYERS INTERMEDIATE
  [[ -f "$OUT/$1/model.safetensors" ]] ||
    "$NACRE" inflate --in "models/$2" --out "$OUT/$1" --layers "$3" \
      --intermediate-size "$4"
}

# pair_of NAME: sets `pair`, the flags of one pair of models.
pair_of() {
  pair=(--target-model "$OUT/target" --draft-model "$OUT/$1" --max-memory 3G)
}

# learn POLICY: a network for the bundled pair.
learn() {
  [[ -f "$OUT/$1/policy.json" ]] ||
    "$NACRE" calibrate --policy "$1" --target-model models/target \
      --draft-model models/draft --prompts "$OUT/learn.jsonl" --out "$OUT/$1" \
      --tune-prompts 1 --repeat 1 --caps 16 | tee "$OUT/$1.txt"
}

# bind NAME POLICY: the network for a pair, whose fingerprints the folder of
# optimal-static has.
bind() {
  rm -rf "$OUT/$1-$2"
  cp -r "$OUT/$2" "$OUT/$1-$2"
  python3 - "$OUT/$1-$2/policy.json" "$OUT/$1-optimal-static/policy.json" <<'EOF'
import json, sys
path, bound = sys.argv[1:]
policy, pair = json.load(open(path)), json.load(open(bound))
for key in ("draft_fingerprint", "target_fingerprint"):
    policy[key] = pair[key]
policy["parameters"] = {}
json.dump(policy, open(path, "w"), indent=1)
EOF
}

# The fastest candidate of each policy, as JSON of a bench says.
fastest() {
  python3 - "$1" <<'EOF'
import json, sys
best = {}
for method in json.load(open(sys.argv[1]))["methods"]:
    if method["method"] == "sd":
        text = method["name"].split("/")[1]
        kind = text.split(":")[0]
        if method["tokens_per_second"] > best.get(kind, (0, ""))[0]:
            best[kind] = (method["tokens_per_second"], text)
print(",".join(text for _, text in best.values()))
EOF
}

joined() { local IFS=,; echo "$*"; }

# What the same tokens would take if neither model held up the other: with the
# step times of ar and sd, where only one of them runs, in the simulator.
simulate_apart() {  # NAME-FILE
  local base=$OUT/$1 times
  # One stream takes one sequence: all of them, one after the other.
  mapfile -t times < <(python3 - "$base" <<'EOF'
import json, sys
base = sys.argv[1]
matches = [json.loads(line)["matches"]
           for line in open(base + "-matches.jsonl")]
json.dump({"matches": sum(matches, [])}, open(base + "-joined.jsonl", "w"))
entries = {m["name"]: m["predicted"]
           for m in json.load(open(base + ".json"))["methods"]}
alone = {at["rows"]: at["ms"] for at in entries["sd/constant"]["target_step"]}
alone[1] = entries["ar"]["target_step"][0]["ms"]
draft = {at["rows"]: at["ms"] for at in entries["sd/constant"]["draft_step"]}
for curve, most in (alone, 16), (draft, 4):
    print(",".join(f"{rows}:{ms:.3f}" for rows, ms in sorted(curve.items())
                   if rows <= most))
EOF
  )
  "$NACRE" simulate --match-trace "$base-joined.jsonl" \
    --step-times "${times[0]}" --draft-step-times "${times[1]}" \
    --latency-us 125 --methods ar,sd,pearl,async --json "$base-apart.json" |
    tee "$base-apart.txt"
}

head -n -"$tune_prompts" tests/data/gsm8k_100.jsonl |
  tail -n "$learn_prompts" >"$OUT/learn.jsonl"
for policy in "${LEARNED[@]}"; do learn "$policy"; done
if [[ "$STAGE" == learn ]]; then exit; fi

inflate target target "$TARGET_LAYERS" "$TARGET_INTERMEDIATE"
for file in "${PROMPT_FILES[@]}"; do
  tail -n "$tune_prompts" "tests/data/$file.jsonl"
done >"$OUT/tune.jsonl"
for entry in "${DRAFTS[@]}"; do
  name=${entry%%:*}
  inflate "$name" draft "${entry##*:}" "$DRAFT_INTERMEDIATE"
  pair_of "$name"
  if [[ ! -f "$OUT/$name-optimal-static/policy.json" ]]; then
    "$NACRE" calibrate "${pair[@]}" --policy optimal-static \
      --out "$OUT/$name-optimal-static" --prompts "$OUT/learn.jsonl" \
      --limit 6 --max-tokens "$max_tokens" --tune-prompts 2 --repeat 1
  fi
  files=(--policy-file "optimal-static=$OUT/$name-optimal-static")
  for policy in "${LEARNED[@]}"; do
    bind "$name" "$policy"
    files+=(--policy-file "$policy=$OUT/$name-$policy")
  done
  if [[ ! -f "$OUT/$name-tune.json" ]]; then
    echo "== $name, tuning"
    "$NACRE" bench "${pair[@]}" "${files[@]}" --methods ar,sd \
      --policies "$(joined "${CANDIDATES[@]}")" --prompts "$OUT/tune.jsonl" \
      --max-tokens "$max_tokens" --ignore-eos --repeat "$tune_repeat" \
      --json "$OUT/$name-tune.json" |
      tee "$OUT/$name-tune.txt"
  fi
  policies=constant,$(fastest "$OUT/$name-tune.json")
  policies+=,heuristic,beta-ts,optimal-static,oracle
  for file in "${PROMPT_FILES[@]}"; do
    [[ -f "$OUT/$name-$file.json" ]] && continue
    echo "== $name, $file"
    "$NACRE" bench "${pair[@]}" "${files[@]}" --methods ar,sd,pearl,async \
      --policies "$policies" --prompts "tests/data/$file.jsonl" \
      --limit "$prompts" --max-tokens "$max_tokens" --ignore-eos \
      --predict --repeat "$repeat" --html "$OUT/$name-$file.html" \
      --json "$OUT/$name-$file.json" \
      --match-trace "$OUT/$name-$file-matches.jsonl" |
      tee "$OUT/$name-$file.txt"
    simulate_apart "$name-$file"
  done
done

# The two verifications, sampled.
pair_of c10
for temperature in 0.5 0.8 1.0; do
  [[ -f "$OUT/ratio-$temperature.json" ]] && continue
  echo "== exact and ratio, temperature $temperature"
  "$NACRE" bench "${pair[@]}" --methods ar,sd,pearl,async \
    --verification exact,ratio --temperature "$temperature" \
    --prompts tests/data/gsm8k_100.jsonl --limit $((2 * prompts)) \
    --max-tokens "$max_tokens" --ignore-eos --repeat "$repeat" \
    --html "$OUT/ratio-$temperature.html" \
    --json "$OUT/ratio-$temperature.json" | tee "$OUT/ratio-$temperature.txt"
done
