#!/usr/bin/env bash
# The 60-second tour: starts the services on loopback and compares the methods
# twice, then writes one text. First each step takes as long as on a GPU, by
# waiting; then as long as it takes here, with the two bundled models slowed down
# to a realistic cost. `make quickstart` builds first. A second run finds the
# slowed models ready.
#
#   NACRE_QUICKSTART_SMOKE=1   a short run that only shows that all of it works
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
# Of large models on GPUs: milliseconds of a step by its rows, c of about 10.
readonly TARGET_PACE=1:30,8:30.6,16:30.9 DRAFT_PACE=1:3,8:3.06,16:3.09
# The sizes are chosen so that, on one core each, a target step takes about
# 10 ms and a draft step about 2 ms (cost ratio c of about 5). Many small layers:
# the two cores share one memory, and large ones would make the sides slow each
# other down, as distinct devices do not.
readonly TARGET_LAYERS=150 TARGET_INTERMEDIATE=688
readonly DRAFT_LAYERS=100 DRAFT_INTERMEDIATE=344
readonly METHODS=ar,sd,pearl,async
readonly PROMPT_FILE=tests/data/gsm8k_100.jsonl
readonly TEXT_PROMPT=$'Question: A baker makes 12 loaves and sells 7 of them. How many are left?\nAnswer:'
prompts=3
max_tokens=64
paced_prompts=2
paced_tokens=48
if [[ "${NACRE_QUICKSTART_SMOKE:-0}" == 1 ]]; then
  prompts=2
  max_tokens=24
  paced_tokens=24
fi
# -----------------------------------------------------------------------------

readonly NACRE=build/bin/nacre
readonly WORK=build/quickstart
mkdir -p "$WORK"

die() {
  echo "quickstart: error: $*" >&2
  exit 1
}
[[ -x "$NACRE" ]] || die "$NACRE is not built: run make quickstart"

# inflate NAME LAYERS INTERMEDIATE: models/NAME to $WORK/NAME. The marker is
# written last and names what was made from what: an interrupted run, other sizes
# or another source make it again.
inflate() {
  local name=$1 layers=$2 intermediate=$3 out="$WORK/$1" wanted
  wanted="layers $layers intermediate $intermediate source $(
    cat "models/$name/config.json" "models/$name/model.safetensors" | sha256sum
  )"
  if [[ "$(cat "$out/.complete" 2>/dev/null)" == "$wanted" ]]; then
    return
  fi
  echo "Making the $name model slower, its output unchanged ($out)"
  rm -rf "$out"
  "$NACRE" inflate --in "models/$name" --out "$out" --layers "$layers" \
    --intermediate-size "$intermediate"
  echo "$wanted" >"$out/.complete"
}

services=
stop_services() {
  if [[ -n "$services" ]]; then
    kill -TERM "$services" 2>/dev/null || true
    wait "$services" 2>/dev/null || true
    services=
  fi
}
trap stop_services EXIT
trap 'exit 130' INT TERM

# start_services: `nacre up` on a free port; its host:port goes to $address.
start_services() {
  local log="$WORK/up.log" try
  # Empty from here on: the line of an earlier run must not count.
  : >"$log"
  "$NACRE" up --target-model "$WORK/target" --draft-model "$WORK/draft" \
    --port 0 >"$log" 2>&1 &
  services=$!
  for ((try = 0; try < 600; try++)); do
    if grep -q '^ready' "$log"; then
      address=$(sed -n 's/^coordinator //p' "$log")
      return
    fi
    kill -0 "$services" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$log" >&2
  die "the services did not start (the lines above end $log)"
}

echo "1. Devices that share nothing: $METHODS on $paced_prompts prompts," \
  "$paced_tokens tokens each."
echo "   Real models, real processes; each step is made to take at least as long" \
  "as on a GPU."
"$NACRE" bench --target-model models/target --draft-model models/draft \
  --target-step-time "$TARGET_PACE" --draft-step-time "$DRAFT_PACE" \
  --prompts "$PROMPT_FILE" --limit "$paced_prompts" --methods "$METHODS" \
  --max-tokens "$paced_tokens" --repeat 1 --json "$WORK/paced.json"

echo
echo "2. The cores of this machine, which share one memory: $METHODS on" \
  "$prompts prompts, $max_tokens tokens each."
inflate target "$TARGET_LAYERS" "$TARGET_INTERMEDIATE"
inflate draft "$DRAFT_LAYERS" "$DRAFT_INTERMEDIATE"

echo "   Both models are inflated: slower, same tokens."
"$NACRE" bench --target-model "$WORK/target" --draft-model "$WORK/draft" \
  --prompts "$PROMPT_FILE" --limit "$prompts" --methods "$METHODS" \
  --max-tokens "$max_tokens" --json "$WORK/bench.json"

echo
echo "3. One text (a tiny model: plausible, not true):"
start_services
printf '%s' "$TEXT_PROMPT"
"$NACRE" generate --address "$address" --prompt "$TEXT_PROMPT" \
  --max-tokens "$max_tokens"
stop_services
