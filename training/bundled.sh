#!/usr/bin/env bash
# Trains a draft of the bundled target, from text to measurement, in one command:
#
#   training/bundled.sh distill|make-eesd|glide|eagle3|medusa GSM8K_TRAIN.jsonl OUT
#
# OUT gets the text (text/), the draft (a folder of the command's name), its
# acceptance on the target's answers to the test prompts (acceptance-COMMAND.txt),
# and what nacre bench said of it, all beside models/draft. A run that was stopped
# goes on where it was.
# Variables: PYTHON (with training/requirements.txt and clients/python), NACRE
# (build/bin/nacre), DRAFT (models/draft: what distill goes on from),
# WRITE_MINUTES (6), MINUTES (24, of training), CPU_MINUTES (of all threads of
# training together; unset: no limit).
set -euo pipefail
if (($# != 3)) || [[ ! "$1" =~ ^(distill|make-eesd|glide|eagle3|medusa)$ ]]; then
  sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
GSM8K=$(realpath "$2")
OUT=$(realpath -m "$3")
readonly METHOD=$1 GSM8K OUT
cd "$(dirname "$0")/.."
NACRE=$(realpath "${NACRE:-build/bin/nacre}")
readonly NACRE PYTHON=${PYTHON:-python3}
readonly WRITE_MINUTES=${WRITE_MINUTES:-6} MINUTES=${MINUTES:-24}
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

# Flags of the command. Time ends a run, not its epochs.
own=(--rows 16 --epochs 40 --evaluations 8 --patience 8)
case $METHOD in
  distill) own+=(--draft "${DRAFT:-models/draft}" --lr 1e-3) ;;
  make-eesd) own+=(--layers 2) ;;
  glide) own+=(--draft models/distilled --own-head) ;;
  eagle3) own+=(--own-head) ;;
esac
if [[ -n ${CPU_MINUTES:-} ]]; then own+=(--cpu-minutes "$CPU_MINUTES"); fi
if [[ ! -f "$OUT/$METHOD/nacre_draft.json" ]]; then
  "$PYTHON" -m nacre_training "$METHOD" --target models/target "${own[@]}" \
    --corpus "$OUT/text/train.corpus" --held-out "$OUT/text/held_out.corpus" \
    --out "$OUT/$METHOD" --minutes "$MINUTES"
fi

"$PYTHON" -m nacre_training acceptance --target models/target --draft models/draft \
  --draft "$OUT/$METHOD" --held-out "$OUT/text/test.corpus" |
  tee "$OUT/acceptance-$METHOD.txt"

# bench NAME ARGUMENT...: of a service, at three temperatures.
bench() {
  for temperature in 0 0.8 1; do
    echo "temperature $temperature, $1"
    "$NACRE" bench --target-model models/target --suffix-drafter off \
      --prompts tests/data/gsm8k_100.jsonl --max-tokens 100 --repeat 1 \
      --temperature "$temperature" --json "$OUT/$1-$temperature.json" "${@:2}"
  done
}
bench draft --draft-model models/draft --methods sd:4,async --tree chain
case $METHOD in
  eagle3) bench eagle3 --drafts 0 --eagle "$OUT/eagle3" --methods ar,async ;;
  medusa) bench medusa --drafts 0 --medusa "$OUT/medusa" --methods ar,async ;;
  *) bench "$METHOD" --draft-model "$OUT/$METHOD" --methods sd:4,async --tree chain ;;
esac
