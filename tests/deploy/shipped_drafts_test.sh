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

cards=(models/*/nacre_draft.json)
[[ -e "${cards[0]}" ]] || fail "models/ has no trained draft"
for card in "${cards[@]}"; do
  draft=$(dirname "$card")
  weights=$draft/model.safetensors
  echo "== $draft"
  [[ $(said "$card" weights_sha256) == $(sha256sum <"$weights" | cut -d' ' -f1) ]] ||
    fail "$weights is not the file of its card"
  [[ $(said "$card" parameters) == $(parameters "$weights") ]] ||
    fail "$weights has $(parameters "$weights") parameters, its card says otherwise"
  cmp -s "$draft/tokenizer.model" models/target/tokenizer.model ||
    fail "$draft has another tokenizer than models/target"
  grep -q "\`$(basename "$draft")\`" models/README.md ||
    fail "models/README.md does not list $draft"
  for temperature in 0 1; do
    report=$work/report.json
    "$NACRE" bench --target-model models/target --draft-model "$draft" \
      --prompts tests/data/gsm8k_100.jsonl --limit 2 --max-tokens 32 \
      --temperature "$temperature" --suffixes off --repeat 1 --ignore-eos \
      --methods ar,sd:4,pearl:4,async --tree chain,best --json "$report" \
      >"$work/log" 2>&1 || { tail "$work/log"; fail "no bench of $draft"; continue; }
    grep -q '"identical_tokens": true' "$report" ||
      fail "$draft changes tokens at temperature $temperature"
    # All but `ar` took some of its tokens.
    (($(grep -c '"acceptance_rate": 0\.[0-9]*[1-9]' "$report") >= 4)) ||
      fail "$draft drafts nothing at temperature $temperature"
  done
done
((failures == 0)) || exit 1
echo "passed"
