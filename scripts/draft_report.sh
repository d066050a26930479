#!/usr/bin/env bash
# Every draft of the bundled target that ships, on real processes: acceptance,
# tokens a step and speed by method, shape, temperature and cost ratio. Steps are
# paced: each takes at least as long as on a device of that speed, by waiting
# (`--step-time`). The numbers go to JSON files in OUT, the tables of
# docs/draft_report.md to the standard output.
#
#   scripts/draft_report.sh OUT               build first: make build; 50 minutes
#   scripts/draft_report.sh OUT CELL...       only these; several may run at once:
#     ranks-T          of 100 prompts: where the target's token stands in a draft
#     best-T-RATIO     drafts by turns, 12 prompts, three times: `async`, `best`
#     DRAFT-T-RATIO    a draft in each method on GSM8K and HumanEval
#     suffixes-T       no draft at all, suffixes alone
# What OUT has is not made again.
# shellcheck disable=SC2034
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
# All have one architecture, so the same step time at a ratio.
readonly DRAFTS=(draft distilled)
readonly CELLS=(ranks-{0,0.8,1} best-0-10 best-0.8-5 best-1-5 suffixes-{0,0.8,1}
  {draft,distilled}-{0,0.8,1}-{5,10,20})
readonly PROMPT_FILES=(gsm8k_100 humaneval)
readonly CELL_PROMPTS=${NACRE_REPORT_PROMPTS:-3} CELL_TOKENS=${NACRE_REPORT_TOKENS:-64}
# -----------------------------------------------------------------------------

readonly NACRE=${NACRE:-build/bin/nacre}
readonly OUT=${1:?usage: scripts/draft_report.sh OUT [CELL...]}
shift
# shellcheck disable=SC1091
source scripts/paced_report.sh
mkdir -p "$OUT"

die() {
  echo "draft_report: error: $*" >&2
  exit 1
}
[[ -x "$NACRE" ]] || die "$NACRE is not built: run make build"

# with DRAFT RATIO: sets `cluster`.
with() {
  local pace
  read -ra pace <<<"$(paced "$2")"
  cluster=(--target-model models/target "${pace[@]}")
  if [[ $1 == none ]]; then cluster+=(--drafts 0); else
    cluster+=(--draft-model "models/$1" --suffixes off)
  fi
}

ranks() {  # T
  prompts=100 max_tokens=96 repeat=1
  for draft in "${DRAFTS[@]}"; do
    with "$draft" 10
    bench "ranks-$1-$draft" gsm8k_100 --temperature "$1" --methods async --tree best
  done
}

best() {  # T RATIO
  prompts=12 max_tokens=96 repeat=1
  for turn in 1 2 3; do
    for draft in "${DRAFTS[@]}"; do
      with "$draft" "$2"
      bench "best-$1-$2-$draft-$turn" gsm8k_100 --temperature "$1" --methods async \
        --tree best
    done
  done
}

methods() {  # DRAFT T RATIO
  prompts=$CELL_PROMPTS max_tokens=$CELL_TOKENS repeat=1
  with "$1" "$3"
  for file in "${PROMPT_FILES[@]}"; do
    bench "$1-$2-$3-$file" "$file" --temperature "$2" \
      --methods ar,sd,pearl,async --tree chain,best
  done
}

suffixes() {  # T
  prompts=$CELL_PROMPTS max_tokens=$CELL_TOKENS repeat=1
  with none 10
  for file in "${PROMPT_FILES[@]}"; do
    bench "suffixes-$1-$file" "$file" --temperature "$1" --methods ar,async
  done
}

cells=("$@")
for cell in "${cells[@]:-${CELLS[@]}}"; do
  IFS=- read -r kind temperature ratio <<<"$cell"
  case $kind in
    ranks) ranks "$temperature" ;;
    best) best "$temperature" "${ratio:?a ratio is missing: $cell}" ;;
    suffixes) suffixes "$temperature" ;;
    draft | distilled) methods "$kind" "$temperature" "${ratio:?a ratio is missing: $cell}" ;;
    *) die "$cell is not one of ${CELLS[*]}" ;;
  esac
done
scripts/draft_report_tables.py "$OUT"
