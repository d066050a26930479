#!/usr/bin/env bash
# Every draft of the bundled target that ships, on real processes: acceptance,
# tokens a step and speed by method, shape, temperature and cost ratio. Steps are
# paced: each takes at least as long as on a device of that speed, by waiting
# (`--step-time`, `--own-draft-step-time`). A draft's step takes the longer the more
# weights it reads for a token; RATIO is that of models/draft. The numbers go to
# JSON files in OUT, the tables of docs/draft_report.md to the standard output.
#
#   scripts/draft_report.sh OUT               build first: make build; three hours
#   scripts/draft_report.sh OUT CELL...       only these; several may run at once:
#     ranks-T          of 100 prompts: where the target's token stands in a draft
#     best-T-RATIO     drafts by turns, 12 prompts, three times: `async`, `best`
#     DRAFT-T-RATIO    a draft in each method and shape on GSM8K and HumanEval
#     plain-DRAFT-T    the same as fast as this machine is
#     suffixes-T       no draft at all, suffixes alone
# What OUT has is not made again.
# shellcheck disable=SC2034
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
# Of a draft worker, and on the target itself (a flag of nacre has the name of
# their kind; "own_" where it may be either). What is not in models/ is left out.
readonly WORKER_DRAFTS=(draft distilled eesd glide eagle) OWN_DRAFTS=(own_eagle medusa)
drafts=()
for name in "${WORKER_DRAFTS[@]}" "${OWN_DRAFTS[@]}"; do
  [[ ! -d models/${name#own_} ]] || drafts+=("$name")
done
CELLS=(ranks-{0,0.8,1} best-0-10 best-0.8-5 best-1-5 suffixes-{0,0.8,1})
for name in "${drafts[@]}"; do
  CELLS+=("$name"-{0,0.8,1}-{5,10,20} "plain-$name"-{0,0.8,1})
done
readonly PROMPT_FILES=(gsm8k_100 humaneval)
# Published shapes: EAGLE-2's, and a list of paths in the manner of Medusa's.
readonly EAGLE2=eagle2:k=8,depth=6,total=16
readonly STATIC='[[0],[1],[2],[3],[0,0],[0,1],[0,2],[1,0],[1,1],[2,0],[0,0,0],[0,0,1],
[0,1,0],[1,0,0],[0,0,0,0],[0,0,0,0,0]]'
readonly CELL_PROMPTS=${NACRE_REPORT_PROMPTS:-3} CELL_TOKENS=${NACRE_REPORT_TOKENS:-64}
# -----------------------------------------------------------------------------

readonly NACRE=${NACRE:-build/bin/nacre}
readonly OUT=${1:?usage: scripts/draft_report.sh OUT [CELL...]}
shift
# shellcheck disable=SC1091
source scripts/paced_report.sh
mkdir -p "$OUT"
echo "$STATIC" >"$OUT/static.tree"

die() {
  echo "draft_report: error: $*" >&2
  exit 1
}
[[ -x "$NACRE" ]] || die "$NACRE is not built: run make build"

among() { [[ " ${*:2} " == *" $1 "* ]]; }  # WORD LIST...

# with DRAFT [RATIO]: sets `cluster`; without RATIO nothing is paced.
with() {
  local pace=() times
  cluster=(--target-model models/target)
  if [[ -n ${2:-} ]]; then
    read -ra pace <<<"$(paced "$2")"
    times=$(step_times "$(scripts/draft_report_tables.py --cost "models/${1#own_}" \
      "$(awk "BEGIN { print $TARGET_MS / $2 }")")")
    cluster+=("${pace[@]:0:2}")
  fi
  if [[ $1 == none ]]; then
    cluster+=(--drafts 0)
  elif among "$1" "${OWN_DRAFTS[@]}"; then
    cluster+=(--drafts 0 "--${1#own_}" "models/${1#own_}" --suffix-drafter off)
    [[ -z ${2:-} ]] || cluster+=(--own-draft-step-time "$times")
  else
    cluster+=(--draft-model "models/$1" --suffixes off)
    [[ -z ${2:-} ]] || cluster+=(--draft-step-time "$times")
  fi
}

ranks() {  # T
  prompts=100 max_tokens=96 repeat=1
  for draft in "${drafts[@]}"; do
    among "$draft" "${WORKER_DRAFTS[@]}" || continue
    with "$draft" 10
    bench "ranks-$1-$draft" gsm8k_100 --temperature "$1" --methods async --tree best
  done
}

best() {  # T RATIO
  prompts=12 max_tokens=96 repeat=1
  for turn in 1 2 3; do
    for draft in "${drafts[@]}"; do
      with "$draft" "$2"
      bench "best-$1-$2-$draft-$turn" gsm8k_100 --temperature "$1" --methods async \
        --tree best
    done
  done
}

# A draft at the target has no `sd` and no `pearl`, and no shape of a request.
methods() {  # NAME DRAFT T [RATIO]
  local shapes=(--methods "ar,sd,pearl,async" --tree-methods "sd,pearl,async"
    --tree "chain,best,cape,$EAGLE2,static:$OUT/static.tree")
  prompts=$CELL_PROMPTS max_tokens=$CELL_TOKENS repeat=1
  ! among "$2" "${OWN_DRAFTS[@]}" || shapes=(--methods "ar,async" --tree "chain,best")
  with "$2" "${4:-}"
  for file in "${PROMPT_FILES[@]}"; do
    bench "$1-$file" "$file" --temperature "$3" "${shapes[@]}"
  done
}

suffixes() {  # T
  prompts=$CELL_PROMPTS max_tokens=$CELL_TOKENS repeat=1
  with none
  cluster+=(--target-step-time "$(step_times "$TARGET_MS")")
  for file in "${PROMPT_FILES[@]}"; do
    bench "suffixes-$1-$file" "$file" --temperature "$1" --methods ar,async
  done
}

cells=("$@")
for cell in "${cells[@]:-${CELLS[@]}}"; do
  among "$cell" "${CELLS[@]}" || die "$cell is not one of ${CELLS[*]}"
done
for cell in "${cells[@]:-${CELLS[@]}}"; do
  IFS=- read -r kind second third <<<"$cell"
  case $kind in
    ranks) ranks "$second" ;;
    best) best "$second" "$third" ;;
    suffixes) suffixes "$second" ;;
    plain) methods "$cell" "$second" "$third" ;;
    *) methods "$cell" "$kind" "$second" "$third" ;;
  esac
done
scripts/draft_report_tables.py "$OUT"
