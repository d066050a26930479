#!/usr/bin/env bash
# PEARL's tables (arXiv:2408.11850) and SVIP's policy (arXiv:2411.18462) on real
# processes: the bundled target with two drafts, at four cost ratios, on two
# kinds of prompts. Steps are paced: each takes at least as long as on a device
# of that speed, by waiting (`--step-time`). The numbers go to JSON files in OUT,
# the tables of docs/pearl_report.md to the standard output.
#
#   scripts/pearl_report.sh OUT            build first: make build; 28 minutes
#                                        with NACRE_REPORT_PROMPTS=3
#   scripts/pearl_report.sh OUT int4-6     only that pair and cost ratio
# What OUT has is not made again.
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
# PAIR-RATIO. `bundled`: the bundled draft. `int4`: the target with its weights
# in int4, a draft that agrees with it as well as those of the papers.
readonly CELLS=({bundled,int4}-{4,6,8,10})
readonly PROMPT_FILES=(gsm8k_100 humaneval)
readonly POLICIES=heuristic,svip:h=0.3  # SVIP's own threshold on SpecBench
prompts=${NACRE_REPORT_PROMPTS:-8}
max_tokens=${NACRE_REPORT_TOKENS:-64}
repeat=${NACRE_REPORT_REPEAT:-1}  # paced runs hardly differ
# -----------------------------------------------------------------------------

readonly NACRE=build/bin/nacre
readonly OUT=${1:?usage: scripts/pearl_report.sh OUT [PAIR-RATIO...]}
shift
# shellcheck disable=SC1091
source scripts/paced_report.sh
mkdir -p "$OUT"

die() {
  echo "pearl_report: error: $*" >&2
  exit 1
}
[[ -x "$NACRE" ]] || die "$NACRE is not built: run make build"

# of_cell PAIR-RATIO: sets `ratio` and `cluster`, the flags of its processes.
of_cell() {
  local draft=() pace
  ratio=${1##*-}
  case "${1%-*}" in
    bundled) draft=(--draft-model models/draft) ;;
    int4) draft=(--draft-model models/target --draft-weights int4) ;;
    *) die "$1 is not one of ${CELLS[*]}" ;;
  esac
  read -ra pace <<<"$(paced "$ratio")"
  cluster=(--target-model models/target "${draft[@]}" "${pace[@]}")
}

cells=("$@")
for cell in "${cells[@]:-${CELLS[@]}}"; do
  of_cell "$cell"
  # gamma of c - 2 to c + 2.
  windows=$(seq -f 'pearl:%g' -s , $((ratio - 2)) $((ratio + 2)))
  methods=ar,sd,sd:5,$windows
  methods+=,pearl-no-pre-verify:$ratio,pearl-no-post-verify:$ratio,async
  for file in "${PROMPT_FILES[@]}"; do
    bench "$cell-$file" "$file" --methods "$methods" --tree chain,best \
      --suffixes off
    bench "$cell-$file-policies" "$file" --methods "sd,pearl:$ratio" \
      --policies "$POLICIES"
  done
done
scripts/pearl_report_tables.py "$OUT"
