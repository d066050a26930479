#!/usr/bin/env bash
# How often the target's token is among the draft's k best, by the score with the
# noise that both sides share and by probability alone. Real processes: the ranks
# are those that sessions report. Prints the table of docs/trees.md.
#
#   scripts/rank_report.sh OUT      build first: make build; 13 minutes
#
# 100 prompts of GSM8K, 96 tokens each, one at a time: many streams at once share a
# step of the draft, and leave each a chain, whose ranks are with the noise. Steps
# are paced, so that a draft pays on every machine. What OUT has is not made again.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly OUT=${1:?usage: scripts/rank_report.sh OUT}
readonly NACRE=build/bin/nacre
readonly STEPS=(--target-step-time '1:30,8:30.6,16:30.9'
  --draft-step-time '1:3,8:3.06,16:3.09')
[[ -x $NACRE ]] || {
  echo "rank_report: error: $NACRE is not built: run make build" >&2
  exit 1
}
mkdir -p "$OUT"
# `best` ranks by the perturbed score, `eagle2` by the draft's probability.
for temperature in 0 0.8 1; do
  for tree in best eagle2; do
    file=$OUT/$temperature-$tree.json
    [[ -f $file ]] && continue
    "$NACRE" bench --target-model models/target --draft-model models/draft \
      --prompts tests/data/gsm8k_100.jsonl --limit 100 --max-tokens 96 \
      --ignore-eos --temperature "$temperature" --methods async --tree "$tree" \
      --suffixes off --repeat 1 "${STEPS[@]}" --json "$file"
  done
done
python3 - "$OUT" <<'END'
import json
import sys

folder = sys.argv[1]
print("| temperature | by | positions | P(rank 1) | <= 2 | <= 4 | <= 8 |")
print("|---|---|---|---|---|---|---|")
for temperature in ("0", "0.8", "1"):
    for tree, name in (("best", "score and noise"), ("eagle2", "probability")):
        with open(f"{folder}/{temperature}-{tree}.json", encoding="utf-8") as file:
            methods = json.load(file)["methods"]
        (ranks,) = [m["ranks"] for m in methods if m["method"] == "async"]
        total = sum(ranks)
        shares = (f"{sum(ranks[:best]) / total:.3f}" for best in (1, 2, 4, 8))
        print(f"| {temperature} | {name} | {total} | {' | '.join(shares)} |")
END
