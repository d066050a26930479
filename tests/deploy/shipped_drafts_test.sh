#!/usr/bin/env bash
# Every trained draft of models/ agrees with its card (nacre_draft.json): the bytes
# of its weights, its parameters, the target it learned from. It loads, drafts, and
# changes no token.
#
#   shipped_drafts_test.sh PROGRAMS
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly NACRE=${1:?usage: shipped_drafts_test.sh PROGRAMS}/nacre

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# said CARD KEY: its text or number.
said() { sed -n "s/^ \"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$1"; }

# parameters FILE: of a bf16 checkpoint, two bytes each behind the header.
parameters() {
  local header
  header=$(od -An -tu8 -N8 "$1")
  echo $((($(stat -c %s "$1") - 8 - header) / 2))
}

# flags DRAFT METHOD: where it runs, on a draft worker or on the target, and how
# long a step takes. A target looks only where that costs little beside its step.
flags() {
  local own="--suffix-drafter off --target-step-time 1:100,64:100"
  case $2 in
    eagle3*) echo "--drafts 0 --eagle $1 $own" ;;
    medusa*) echo "--drafts 0 --medusa $1 $own" ;;
    *) echo "--draft-model $1 --suffixes off --target-step-time 1:5" ;;
  esac
}

cards=(models/*/nacre_draft.json)
[[ -e "${cards[0]}" ]] || fail "models/ has no trained draft"
for card in "${cards[@]}"; do
  draft=$(dirname "$card")
  weights=("$draft"/*.safetensors)
  echo "== $draft"
  [[ $(said "$card" weights_sha256) == $(sha256sum <"${weights[0]}" | cut -d' ' -f1) ]] ||
    fail "${weights[0]} is not the file of its card"
  [[ $(said "$card" parameters) == $(parameters "${weights[0]}") ]] ||
    fail "${weights[0]} has $(parameters "${weights[0]}") parameters, its card says otherwise"
  grep -q "\`$(basename "$draft")\`" models/README.md ||
    fail "models/README.md does not list $draft"
  read -ra own <<<"$(flags "$draft" "$(said "$card" method)")"
  methods=ar,async
  if [[ ${own[0]} == --draft-model ]]; then
    methods=ar,sd:4,pearl:4,async
    cmp -s "$draft/tokenizer.model" models/target/tokenizer.model ||
      fail "$draft has another tokenizer than models/target"
  fi
  taken=0 # tokens of the draft
  for temperature in 0 1; do
    report=$work/report.json
    "$NACRE" bench --target-model models/target "${own[@]}" \
      --prompts tests/data/gsm8k_100.jsonl --limit 2 --max-tokens 32 \
      --temperature "$temperature" --repeat 1 --ignore-eos \
      --methods "$methods" --tree chain,best --json "$report" \
      >"$work/log" 2>&1 || { tail "$work/log"; fail "no bench of $draft"; continue; }
    grep -q '"identical_tokens": true' "$report" ||
      fail "$draft changes tokens at temperature $temperature"
    taken=$((taken + $(awk -F'[:,]' '/"(suffix_)?accepted": / { sum += $2 } END { print sum + 0 }' \
      "$report")))
  done
  # How many depends on time: a target does not wait for late ones.
  ((taken > 0)) || fail "no token of $draft was taken"
done
((failures == 0)) || exit 1
echo "passed"
