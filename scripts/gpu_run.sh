#!/usr/bin/env bash
# Runs the GPU tests and benchmarks of a bundle (scripts/gpu_bundle.sh).
#   usage: ./run.sh [--rehearse|--unpack] [--part PART]... [--only NAME]...
#                   [OUT_DIR]
#
# PART, with what it takes at most:
#   right   tests, and that all methods give the same tokens } together 8 minutes,
#   fast    benchmarks                                       } and what is run
#                                                              unless told
#   models  benchmarks of models of every size and format, 10 minutes
#   clean   compute-sanitizer, 22 minutes
#   all     all of these
#
# OUT_DIR (default ./results) gets summary.json, a JSON file for each benchmark
# and log.txt with all output, as it comes. What an earlier run left there is moved
# to a folder in it. Flags come in any order. --only: of all parts, or those that
# are named, no steps but those with the names, which may be patterns: --only
# 'bench_*' --only inflate. A step that fails is shown as failed, the others go on.
# Exit codes: 0 all passed; 1 a step failed, there was no time for it, or the log
# or summary.json could not be written; 77 no GPU, or too old a driver: nothing
# was run.
#
# --rehearse, for machines without a GPU: the steps that need no kernels of ours
# run on the CPU, short; the others are skipped.
# --unpack: only unpacks the programs beside this script, which each of the others
# does first.
set -uo pipefail

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; }
die() {
  echo "run.sh: $*" >&2
  exit 1
}
rehearse='' unpack='' out=''
only=() parts=()
while (($# > 0)); do
  case "$1" in
    --rehearse) rehearse=1 ;;
    --unpack) unpack=1 ;;
    --only | --part)
      (($# > 1)) || die "$1 needs a value"
      case "$1 $2" in
        --only*) only+=("$2") ;;
        "--part all") parts+=(right fast models clean) ;;
        "--part right" | "--part fast" | "--part models" | "--part clean")
          parts+=("$2")
          ;;
        *) die "no part '$2' (known: right fast models clean all)" ;;
      esac
      shift
      ;;
    --help | -h)
      usage
      exit
      ;;
    -*) die "no flag '$1' (known: --rehearse --unpack --part --only --help)" ;;
    *)
      [[ -z "$out" ]] || die "two folders for results, $out and $1"
      out=$1
      ;;
  esac
  shift
done
if ((${#parts[@]} == 0)); then
  parts=(right fast)
  ((${#only[@]} == 0)) || parts+=(models clean)
fi
part() { [[ " ${parts[*]} " == *" $1 "* ]]; }
# Until when the steps of a part may run, from where it begins. Of right and fast
# together; a rehearsal is for machines where other things run.
until=0
begin_part() { # PART SECONDS
  now=$1
  until=$((SECONDS + ${NACRE_GPU_SECONDS:-$2}))
}
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
# `unpacked` comes last: a run that was stopped begins again.
if [[ ! -f "$bundle/unpack/unpacked" ]]; then
  if ! LD_LIBRARY_PATH=$bundle/unpack "$bundle/unpack/xz" -dc \
    "$bundle/programs.tar.xz" | tar -xf - -C "$bundle"; then
    die "cannot unpack $bundle/programs.tar.xz"
  fi
  touch "$bundle/unpack/unpacked"
fi
[[ -n "$unpack" ]] && exit
out=${out:-results}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
# Tests find their data relative to it.
cd "$bundle" || exit 1
log=$out/log.txt
# What an earlier run left is not taken for this one's.
shopt -s nullglob
earlier=("$out"/{summary,tokens,{bench,pair}_*}.json* "$log"*)
shopt -u nullglob
if ((${#earlier[@]} > 0)); then
  aside=1
  while [[ -e "$out/earlier-$aside" ]]; do aside=$((aside + 1)); done
  { mkdir "$out/earlier-$aside" && mv "${earlier[@]}" "$out/earlier-$aside"; } ||
    die "cannot move what an earlier run left in $out to $out/earlier-$aside"
  echo "what an earlier run left in $out is in $out/earlier-$aside"
fi
cannot_write() { die "cannot write $*; is the disk full?"; }
{ : >"$log"; } 2>/dev/null || cannot_write "$log"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# --- Steps -------------------------------------------------------------------

names=() states=() durations=() notes=()
failures=0

# No quotes, backslashes or control characters: it goes into JSON and a table.
# shellcheck disable=SC1003
plain() { tr -d '"\\' | tr -c '[:print:]\n' ' ' | tr '\n' ' ' | cut -c 1-160; }

record() { # NAME STATE SECONDS NOTE
  local note
  note=$(plain <<<"$4")
  names+=("$1") states+=("$2") durations+=("$3") notes+=("${note% }")
  [[ "$2" == failed ]] && failures=$((failures + 1))
  printf '[%3d s] %-22s %-7s %s\n' "$SECONDS" "$1" "$2" "${note% }"
  summarize running
}

# So that a run that is stopped from outside leaves what it has.
summarize() { # STATE
  local i comma text new=$out/summary.json.new
  text=$(
    printf '{\n "state": "%s",\n "seconds": %d,\n "failed": %d,\n' "$1" \
      "$SECONDS" "$failures"
    printf ' "commit": "%s",\n "device": %s,\n "steps": [' \
      "$(sed -n 's/^commit //p' BUILD | plain | tr -d ' ')" "${facts:-null}"
    for i in "${!names[@]}"; do
      comma=,
      ((i == 0)) && comma=
      printf '%s\n  {"name": "%s", "state": "%s", "seconds": %d, "note": "%s"}' \
        "$comma" "${names[i]}" "${states[i]}" "${durations[i]}" "${notes[i]}"
    done
    printf '\n ]\n}'
  )
  { printf '%s\n' "$text" >"$new" && mv "$new" "$out/summary.json"; } 2>/dev/null || {
    rm -f "$new"
    cannot_write "$out/summary.json"
  }
}

# What of a step's output tells how it went.
note_of() {
  { grep -E '^(summary:|identical tokens|skipped:|nacre[a-z-]*: )' "$1" ||
    grep -E 'PASSED|FAILED|ERROR SUMMARY|SKIPPED' "$1" ||
    grep . "$1"; } | tail -n 1
}

now= # the part that the steps below are of
wanted() { # NAME
  local pattern
  part "$now" || return
  for pattern in "${only[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    [[ "$1" == $pattern ]] && return
  done
  ((${#only[@]} == 0))
}

# step NAME LIMIT COMMAND...: runs it, LIMIT seconds at most. Exit code 77 means
# that it found no GPU.
step() {
  local name=$1 limit=$2 left code written begin=$SECONDS output=$work/output
  shift 2
  wanted "$name" || return
  left=$((until - SECONDS))
  if ((left < 5)); then
    record "$name" failed 0 "no time left"
    return 1
  fi
  ((limit > left)) && limit=$left
  printf '[%3d s] %-22s ...\n' "$SECONDS" "$name"
  { echo "== $name: $*" >>"$log"; } 2>/dev/null || cannot_write "$log"
  # To the log while it runs: a run that is stopped from outside leaves that much.
  timeout -k 5 "$limit" "$@" 2>&1 </dev/null | tee "$output" 2>/dev/null >>"$log"
  code=${PIPESTATUS[0]} written=${PIPESTATUS[1]}
  { printf '== %s: exit code %d\n\n' "$name" "$code" >>"$log"; } 2>/dev/null ||
    written=1
  ((written == 0)) || cannot_write "$log or $output"
  case $code in
    0) record "$name" passed $((SECONDS - begin)) "$(note_of "$output")" ;;
    77) record "$name" skipped $((SECONDS - begin)) "no device" ;;
    124 | 137)
      record "$name" failed $((SECONDS - begin)) "stopped after $limit s"
      ;;
    *)
      record "$name" failed $((SECONDS - begin)) "code $code: $(note_of "$output")"
      tail -n 12 "$output" | sed 's/^/    | /'
      ;;
  esac
  ((code == 0))
}

skip() { # NAME WHY
  if wanted "$1"; then record "$1" skipped 0 "$2"; fi
}

# gpu_step: a step that nothing but a GPU can do.
gpu_step() {
  if [[ -n "$rehearse" ]]; then
    skip "$1" "no device"
  else
    step "$@"
  fi
}

# A test program without a device says that all was skipped: on a machine with
# one that is a failure.
gpu_test() { # PROGRAM ARGS...
  local code
  "$@" | tee "$work/test"
  code=${PIPESTATUS[0]}
  if ((code == 0)) && grep -q 'no CUDA device' "$work/test"; then
    echo "skipped: it sees no device, run.sh does"
    return 1
  fi
  return "$code"
}
# A run of `nacre bench` in which a draft of the target's own was right at least
# once. Looks at it are paid for: on a busy machine they may all be too dear.
own_draft() { # COMMAND...
  local code
  for _ in 1 2 3; do
    "$@" | tee "$work/own"
    code=${PIPESTATUS[0]}
    ((code == 0)) || return "$code"
    grep -q "^async: of the target's own drafts [1-9]" "$work/own" && return
  done
  echo "nacre: no token of its own draft was accepted"
  return 1
}
# `nacre bench` with workers that are asked for /metrics afterwards: each must
# have a sample above 0 that begins so.
counted() { # SAMPLE UP_ARGS... -- BENCH_ARGS...
  local sample=$1 line code coordinator='' ready='' up=() workers=()
  shift
  while [[ "$1" != -- ]]; do
    up+=("$1")
    shift
  done
  coproc UP { exec ./bin/nacre up "${up[@]}" --port 0 --metrics-port 0; }
  local pid=$UP_PID from=${UP[0]}
  while [[ -z "$ready" ]] && read -r line <&"$from"; do
    echo "$line"
    case "$line" in
      "coordinator "*) coordinator=${line##* } ;;
      *"  metrics "*) workers+=("${line##* }") ;;
      ready*) ready=1 ;;
    esac
  done
  [[ -n "$ready" ]] && ./bin/nacre bench --address "$coordinator" "${@:2}"
  code=$?
  if ((code == 0 && ${#workers[@]} < 2)); then
    echo "nacre: ${#workers[@]} workers said where their metrics are, not 2"
    code=1
  fi
  if ((code == 0)); then
    for line in "${workers[@]}"; do
      { exec 4<>"/dev/tcp/${line/://}" && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&4 &&
        grep -E "^$sample.* [1-9]" <&4; } && continue
      echo "nacre: the worker of $line has no $sample above 0"
      code=1
    done
    exec 4>&-
  fi
  kill "$pid" && wait "$pid"
  return "$code"
}
export -f gpu_test own_draft counted
export work

finish() { # STATE
  local i
  summarize "$1"
  if [[ -f "$work/headlines" ]]; then
    echo
    cat "$work/headlines"
  fi
  echo
  printf '%-24s %-8s %5s  %s\n' step state s ""
  for i in "${!names[@]}"; do
    printf '%-24s %-8s %5d  %s\n' "${names[i]}" "${states[i]}" \
      "${durations[i]}" "${notes[i]:0:100}"
  done
  echo "$1: $failures of ${#names[@]} steps failed, $SECONDS s; results in $out"
}

# --- The machine -------------------------------------------------------------

facts=
if ! ./bin/nacre --help >"$work/output" 2>&1; then
  tee -a "$log" <"$work/output" >&2
  echo "run.sh: the programs do not start here ($(tail -n 1 BUILD);" \
    "this machine has $(getconf GNU_LIBC_VERSION 2>/dev/null ||
      echo 'another C library'))" >&2
  record start failed 0 "$(tail -n 1 "$work/output")"
  finish failed
  exit 1
fi
{ command -v nvidia-smi >/dev/null && nvidia-smi; } >>"$log" 2>&1
facts=$(./bin/bench_gpu --facts 2>>"$log")
has_device=$?
echo "$facts" | tee -a "$log"
if ((has_device != 0)); then
  why=$facts
  facts=null
fi
if ((has_device != 0)) && [[ -z "$rehearse" ]]; then
  none() { # PART NAME...
    now=$1
    shift
    for name; do skip "$name" "no device"; done
  }
  mapfile -t tests < <(cut -d ' ' -f 1 tests/list)
  none right "${tests[@]}" exact-gpu exact-gpu-sampled exact-draft-on-cpu \
    exact-{eagle,glide,medusa,cublas,persistent}
  none fast bench_gpu inflate bench-pair-gpu bench-pair-draft-on-cpu bench_cuda_gemm \
    bench_gpu_{cublas,persistent}
  none models bench_gpu_{formats,70B,unfused}
  none clean sanitize-{memcheck,racecheck,initcheck,synccheck} \
    sanitize-{memcheck,racecheck,synccheck}-{attention,pairs} \
    sanitize-{memcheck,synccheck}-persistent \
    sanitize-{memcheck,racecheck,synccheck}-warpgroups
  finish "no device"
  echo "run.sh: there is no GPU to run on: $why" >&2
  exit 77
fi

# --- Right? ------------------------------------------------------------------

begin_part right "$([[ -n "$rehearse" ]] && echo 1800 || echo 465)"
readonly begun=$SECONDS

while read -r name args; do
  limit=75
  report=()
  if [[ "$name" == model_cuda_tokens_test ]]; then
    # Greedy tokens of 100 prompts, GPU against CPU.
    report=("--gtest_output=json:$out/tokens.json")
  fi
  # shellcheck disable=SC2086  # words of a list of ours
  gpu_step "$name" "$limit" bash -c 'gpu_test "$@"' _ "./tests/$name" \
    "${report[@]}" $args
done <tests/list
grep -h '^near-tie\|near-ties told' "$log" | tail -n 12 >"$work/headlines"

# Method for method the same tokens, or `nacre bench` fails.
backend=cuda limit=12 tokens=64
if [[ -n "$rehearse" ]]; then backend=cpu limit=1 tokens=16; fi
of_pair=(bench --prompts tests/data/gsm8k_100.jsonl --backend "$backend"
  --repeat 1)
bench() { # NAME SECONDS TARGET DRAFT ARGS...
  local name=$1 seconds=$2
  shift 2
  step "$name" "$seconds" ./bin/nacre "${of_pair[@]}" --target-model "$1" \
    --draft-model "$2" "${@:3}"
}
methods=(--methods "ar,sd,pearl,async" --limit "$limit" --max-tokens "$tokens")
bench exact-gpu 60 models/target models/draft "${methods[@]}"
bench exact-gpu-sampled 60 models/target models/draft "${methods[@]}" \
  --temperature 0.8 --seed 7
bench exact-draft-on-cpu 60 models/target models/draft "${methods[@]}" \
  --draft-backend cpu
# Steps so long that a look at the draft is worth its time, on cores also where
# other things run.
own_ms=30 at_once=1
# Most of such a step is waiting: a rehearsal waits for all prompts at once.
[[ -n "$rehearse" ]] && own_ms=200 at_once=3
for own in eagle glide medusa; do
  step "exact-$own" 300 bash -c 'own_draft "$@"' _ ./bin/nacre \
    "${of_pair[@]}" --target-model models/target --draft-model models/draft \
    --drafts 0 --suffix-drafter off "--$own" "models/$own" \
    --target-step-time "1:$own_ms,64:$own_ms" --methods ar,async --limit 3 --max-tokens 32 \
    --streams "$at_once"
done
if [[ -n "$rehearse" ]]; then
  skip exact-cublas "no device"
  # Steps that a CPU counts, too.
  as_one=off sample=${NACRE_GPU_SAMPLE:-nacre_worker_steps_total}
else
  bench exact-cublas 60 models/target models/draft "${methods[@]}" \
    --prefill cublas
  as_one=on sample='nacre_worker_step_lists_total[{].*as="persistent"'
fi
# Of workers whose steps are all queued one by one the tokens are the same, too.
step exact-persistent 60 bash -c 'counted "$@"' _ "$sample" \
  --target-model models/target --draft-model models/draft --backend "$backend" \
  --prefix-cache off --persistent-steps "$as_one" -- \
  --prompts tests/data/gsm8k_100.jsonl --repeat 1 "${methods[@]}"

# --- Fast? -------------------------------------------------------------------

now=fast
left=$((465 - (SECONDS - begun) - 190))
gpu_step bench_gpu 200 ./bin/bench_gpu --json "$out/bench_gpu.json" \
  --seconds "$((left < 20 ? 20 : left > 170 ? 170 : left))"
grep -h '^summary:' "$log" >>"$work/headlines"

# Layers are added that change no output: what a token costs on a GPU is counted
# in layers as long as they are small.
layers=(150 30)
if [[ -n "$rehearse" ]]; then layers=(8 3); fi
inflate() { # NAME LAYERS
  ./bin/nacre inflate --in "models/$1" --out "$work/$1" --layers "$2"
}
export -f inflate
# shellcheck disable=SC2016  # the inner shell expands them
if step inflate 60 bash -c \
  'inflate target "$0" && inflate draft "$1"' "${layers[@]}"; then
  speed=(--limit "$((limit < 4 ? limit : 4))" --max-tokens "$tokens")
  speed+=(--methods "ar,sd,pearl,async")
  bench bench-pair-gpu 60 "$work/target" "$work/draft" "${speed[@]}" \
    --json "$out/pair_gpu.json"
  bench bench-pair-draft-on-cpu 60 "$work/target" models/draft "${speed[@]}" \
    --draft-backend cpu --json "$out/pair_draft_on_cpu.json"
fi
gpu_step bench_cuda_gemm 60 ./bin/bench_cuda_gemm 5 "$out/bench_cuda_gemm.json"
gpu_step bench_gpu_cublas 60 ./bin/bench_gpu --models 8B --prefill cublas \
  --seconds 45 --json "$out/bench_gpu_cublas.json"
# Beside 1B of bench_gpu, whose steps are graphs. None as one kernel is a failure.
persistent() { # JSON COMMAND...
  local json=$1
  shift
  "$@" --json "$json" || return
  grep -q '"persistent": *[1-9]' "$json" && return
  echo "nacre: no step was one kernel, or there was no time for the model"
  return 1
}
export -f persistent
gpu_step bench_gpu_persistent 75 bash -c 'persistent "$@"' _ \
  "$out/bench_gpu_persistent.json" ./bin/bench_gpu --models 1B --persistent \
  --seconds 60

# --- Of every size and format ------------------------------------------------

begin_part models 580
models() { # NAME SECONDS MODELS ARGS...
  gpu_step "$1" "$(($2 + 30))" ./bin/bench_gpu --models "$3" --seconds "$2" \
    --json "$out/$1.json" "${@:4}"
}
models bench_gpu_formats 150 1B:fp8,1B:int8,1B:int4,8B:fp8,8B:int8,8B:int4
models bench_gpu_70B 200 70B:int4,70B:fp8,70B:int8,70B
models bench_gpu_unfused 120 1B,8B,70B:fp8 --no-fusion

# --- Clean? ------------------------------------------------------------------

sanitizer=$(command -v compute-sanitizer ||
  ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
sanitize() { # NAME LIMIT TOOL COMMAND...
  local name=$1 limit=$2 tool=$3
  shift 3
  if [[ -z "$sanitizer" ]]; then
    skip "$name" "no compute-sanitizer on this machine"
  else
    gpu_step "$name" "$limit" "$sanitizer" --tool "$tool" --error-exitcode 1 "$@"
  fi
}
begin_part clean 1320
# The order of accesses of all threads is the dearest thing to follow: it did not
# end within 100 seconds on an H200.
for tool in memcheck racecheck initcheck synccheck; do
  limit=100
  [[ "$tool" == racecheck ]] && limit=400
  sanitize "sanitize-$tool" "$limit" "$tool" ./tests/kernels_cuda_gemm_test \
    --quick
done
# Warps hand each other most in attention (every shape, in splits and whole, and
# batches of all sizes), and in products that norm, gate and turn.
attention='*ForEveryShape*:*ALaterRowsNumbers*:*RowsHaveTheSameBits*'
for tool in memcheck racecheck synccheck; do
  sanitize "sanitize-$tool-attention" 60 "$tool" \
    ./tests/kernels_cuda_attention_test --gtest_filter="$attention"
  sanitize "sanitize-$tool-pairs" 60 "$tool" ./tests/kernels_cuda_pairs_test \
    --gtest_filter='*AwkwardShapes*'
done
# Blocks wait for each other, and barriers have other threads in each phase.
for tool in memcheck synccheck; do
  sanitize "sanitize-$tool-persistent" 60 "$tool" \
    ./tests/model_cuda_persistent_test --gtest_filter='*/Small'
done
# Warps that copy and warpgroups that multiply hand each other stages.
for tool in memcheck racecheck synccheck; do
  sanitize "sanitize-$tool-warpgroups" 40 "$tool" \
    ./tests/kernels_cuda_wide_attention_test --gtest_filter='*EveryGroup*'
done

if ((${#names[@]} == 0)); then
  echo "run.sh: no step of ${parts[*]} has the name ${only[*]}" >&2
  exit 1
fi
if ((failures > 0)); then
  finish failed
  exit 1
fi
finish passed
