#!/usr/bin/env bash
# Every length policy in every method on the bundled pair, made slower at three
# cost ratios, on two kinds of prompts; then exact match beside the ratio test.
# Trains what has to be trained for each pair first. A page (HTML) and the numbers
# (JSON) for each run in OUT; docs/policy_report.md tells what came of it.
#
#   scripts/policy_report.sh OUT       build first: make build; half an hour
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
# A target step of about 19 ms on one core. Drafts by their layers: c = T_target /
# T_draft of about 5, 10 and 20 (the pages say what it was).
readonly TARGET_LAYERS=130 TARGET_INTERMEDIATE=688
readonly DRAFTS=(c5:85 c10:37 c20:15) DRAFT_INTERMEDIATE=344
readonly PROMPT_FILES=(gsm8k_100 humaneval)
readonly POLICIES=constant,constant:n=2,constant:n=4,constant:n=8,heuristic,confidence,svip,beta-ts,cali-ts,disco,specdec++,optimal-static,oracle
readonly LEARNED=(disco specdec++ optimal-static)
# Of each file: the first ones are measured, others train.
prompts=${NACRE_REPORT_PROMPTS:-3}
train_prompts=${NACRE_REPORT_TRAIN_PROMPTS:-16}
max_tokens=${NACRE_REPORT_TOKENS:-64}
repeat=${NACRE_REPORT_REPEAT:-1}
# -----------------------------------------------------------------------------

readonly NACRE=build/bin/nacre
readonly OUT=${1:?usage: scripts/policy_report.sh OUT}
mkdir -p "$OUT"

inflate() {  # NAME SOURCE LAYERS INTERMEDIATE
  [[ -f "$OUT/$1/model.safetensors" ]] ||
    "$NACRE" inflate --in "models/$2" --out "$OUT/$1" --layers "$3" \
      --intermediate-size "$4"
}

inflate target target "$TARGET_LAYERS" "$TARGET_INTERMEDIATE"
for file in "${PROMPT_FILES[@]}"; do
  sed -n "21,$((20 + train_prompts))p" "tests/data/$file.jsonl"
done >"$OUT/train.jsonl"

for entry in "${DRAFTS[@]}"; do
  name=${entry%%:*}
  inflate "$name" draft "${entry##*:}" "$DRAFT_INTERMEDIATE"
  pair=(--target-model "$OUT/target" --draft-model "$OUT/$name"
    --max-memory 3G)
  files=()
  for policy in "${LEARNED[@]}"; do
    folder="$OUT/$name-$policy"
    [[ -f "$folder/policy.json" ]] ||
      "$NACRE" calibrate "${pair[@]}" --policy "$policy" --out "$folder" \
        --prompts "$OUT/train.jsonl" --max-tokens "$max_tokens" \
        --thresholds 0.4,0.6,0.8 --caps 8,16 --tune-prompts 4 --repeat 1
    files+=(--policy-file "$policy=$folder")
  done
  for file in "${PROMPT_FILES[@]}"; do
    echo "== $name, $file"
    "$NACRE" bench "${pair[@]}" "${files[@]}" --methods ar,sd,pearl,async \
      --policies "$POLICIES" --prompts "tests/data/$file.jsonl" \
      --limit "$prompts" --max-tokens "$max_tokens" --ignore-eos \
      --repeat "$repeat" --json "$OUT/$name-$file.json" \
      --html "$OUT/$name-$file.html" | tee "$OUT/$name-$file.txt"
  done
done

# The two verifications, sampled.
for temperature in 0.5 0.8 1.0; do
  echo "== exact and ratio, temperature $temperature"
  "$NACRE" bench --target-model "$OUT/target" --draft-model "$OUT/c10" \
    --max-memory 3G --methods ar,sd,pearl,async --verification exact,ratio \
    --temperature "$temperature" --prompts tests/data/gsm8k_100.jsonl \
    --limit $((2 * prompts)) --max-tokens "$max_tokens" --ignore-eos \
    --repeat "$repeat" --json "$OUT/ratio-$temperature.json" \
    --html "$OUT/ratio-$temperature.html" | tee "$OUT/ratio-$temperature.txt"
done
