#!/usr/bin/env bash
# Trains a draft of the bundled target, from text to measurement, in one command:
#
#   training/bundled.sh distill|make-eesd GSM8K_TRAIN.jsonl OUT
#
# OUT gets the text (text/), the draft (distill/ or make-eesd/), its acceptance on
# the target's answers to the test prompts (acceptance.txt), and what nacre bench
# said of it, all beside models/draft. A run that was stopped goes on where it was.
# Variables: PYTHON (with training/requirements.txt and clients/python), NACRE
# (build/bin/nacre), WRITE_MINUTES (6) and MINUTES (20, of training).
set -euo pipefail
(($# == 3)) && [[ "$1" == distill || "$1" == make-eesd ]] || {
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
readonly METHOD=$1 GSM8K=$(realpath "$2") OUT=$(realpath -m "$3")
cd "$(dirname "$0")/.."
readonly PYTHON=${PYTHON:-python3} NACRE=$(realpath "${NACRE:-build/bin/nacre}")
readonly WRITE_MINUTES=${WRITE_MINUTES:-6} MINUTES=${MINUTES:-20}
readonly PAIR=(--target-model models/target --draft-model models/draft)
mkdir -p "$OUT/text"
export PYTHONPATH=$PWD/training

# write NAME ARGUMENT...: lets the target write text/NAME.corpus.
write() {
  "$PYTHON" -m nacre_training text --address "$address" --out "$OUT/text/$1.corpus" \
    "${@:2}"
}
readonly NEVER=(--never tests/data/gsm8k_100.jsonl --never tests/data/humaneval.jsonl)

if [[ ! -f "$OUT/text/written" ]]; then
  "$PYTHON" training/bundled_prompts.py --gsm8k "$GSM8K" --out "$OUT/text"
  rm -f "$OUT/up.out"  # of a run that was stopped
  "$NACRE" up --port 0 --drafts 0 "${PAIR[@]}" >"$OUT/up.out" 2>"$OUT/up.log" &
  service=$!
  trap 'kill $service 2>/dev/null; wait' EXIT
  until grep -qs ^ready "$OUT/up.out"; do
    kill -0 $service || { tail "$OUT/up.log" >&2; exit 1; }
    sleep 0.2
  done
  address=$(awk '/^coordinator/ {print $2}' "$OUT/up.out")
  write held_out --prompts "$OUT/text/held_out.jsonl" --limit 40 "${NEVER[@]}"
  # To measure with, never to train on.
  write test --prompts tests/data/gsm8k_100.jsonl
  write train --prompts "$OUT/text/train.jsonl" --minutes "$WRITE_MINUTES" "${NEVER[@]}"
  kill $service
  wait $service || true
  trap - EXIT
  touch "$OUT/text/written"
fi

start=()
if [[ $METHOD == distill ]]; then start=(--draft models/draft); fi
if [[ ! -f "$OUT/$METHOD/nacre_draft.json" ]]; then
  "$PYTHON" -m nacre_training "$METHOD" --target models/target "${start[@]}" \
    --corpus "$OUT/text/train.corpus" --held-out "$OUT/text/held_out.corpus" \
    --out "$OUT/$METHOD" --minutes "$MINUTES"
fi

"$PYTHON" -m nacre_training acceptance --draft models/draft --draft "$OUT/$METHOD" \
  --held-out "$OUT/text/test.corpus" | tee "$OUT/acceptance.txt"
for temperature in 0 0.8 1; do
  for draft in models/draft "$OUT/$METHOD"; do
    echo "temperature $temperature, draft $draft"
    "$NACRE" bench --target-model models/target --draft-model "$draft" \
      --prompts tests/data/gsm8k_100.jsonl --methods sd:4,async --tree chain \
      --suffixes off --max-tokens 100 --repeat 1 --temperature "$temperature" \
      --json "$OUT/$(basename "$draft")-$temperature.json"
  done
done
