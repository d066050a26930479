#!/usr/bin/env bash
# Nacre beside llama.cpp on the same cores: steps of 1 to 16 rows, a prompt, and
# whole answers. llama.cpp is built from the sources in PyPI's `llama-cpp-python`;
# both read the same weights. Runs alternate: Nacre, llama.cpp, the other way
# round in the next turn. The tables go to the standard output (Markdown) and to
# WORK/RESULTS/table.json. What WORK has is not made or measured again.
#
#   scripts/compare_llama_cpp.sh WORK [FLAG...] [CELL...]     first: make build
#     CELL: SHAPE-WEIGHTS-THREADS   110m or 1.1b; bf16, int8 or int4; 1 or 2. By
#                                   name alone q8_0 and q4_0, where Nacre reads
#                                   the same GGUF file, as floats
#           end-to-end              the pair of the quickstart, on two cores
#     --turns N      of each cell (5); a second call with more adds turns
#     --no-avx512    neither side may use it; without end-to-end
#     --build        build and convert alone
#   NACRE_COMPARE_UNDER="chrt -r 5"   put before every measured command
#   NACRE_COMPARE_BUILD=build         Nacre's build tree, or a folder whose bin has
#                                     the programs
#   NACRE_COMPARE_JOBS=2              compilers at once
# WORK lies outside the tree; it takes 8 GB. On two cores a turn of all 110M cells
# takes a minute, of all 1.1B cells seven, of end-to-end one.
set -euo pipefail
cd "$(dirname "$0")/.."

# --- What to run -------------------------------------------------------------
readonly SDIST=llama-cpp-python==0.3.36
readonly STEP_CELLS=({110m,1.1b}-{bf16,int8,int4}-{1,2})
readonly CELLS=("${STEP_CELLS[@]}" end-to-end)
readonly FILE_CELLS=({110m,1.1b}-{q8_0,q4_0}-{1,2})
declare -Ar HIDDEN=([110m]=768 [1.1b]=2048) LAYERS=([110m]=13 [1.1b]=22)
# Q4_0 has 4.5 bits a weight, as int4; Q8_0 8.5, int8 8.25.
declare -Ar OF_LLAMA_CPP=([bf16]=bf16 [int8]=q8_0 [int4]=q4_0 [q8_0]=q8_0 [q4_0]=q4_0)
readonly ROWS=1,2,4,8,16 CONTEXT=128 STEPS=9 PROMPT=512 PROMPTS=3
readonly PROMPT_FILE=tests/data/gsm8k_100.jsonl ANSWERS=3 TOKENS=64
readonly DRAFTED=(2 3 5)  # tokens a draft; llama.cpp's default is 3
# -----------------------------------------------------------------------------

readonly BUILD=${NACRE_COMPARE_BUILD:-build}
readonly NACRE=$BUILD/bin/nacre
usage() { sed -n '/^#   scripts/,/^[^#]/s/^# \{0,1\}//p' "$0"; }
die() {
  echo "compare_llama_cpp: error: $*" >&2
  exit 1
}

read_arguments() {
  [[ $# -gt 0 && $1 != -* ]] || die "a folder is missing: $(usage)"
  WORK=$(realpath -m "$1")
  [[ "$WORK/" != "$PWD/"* ]] || die "$WORK lies within the tree: name a folder outside"
  shift
  turns=5 avx512=on only_build=
  cells=()
  while (($#)); do
    case $1 in
      --turns)
        turns=${2:-}
        [[ $turns =~ ^[1-9][0-9]?$ ]] || die "--turns: \"$turns\" is not in 1..99"
        shift
        ;;
      --no-avx512) avx512=off ;;
      --build) only_build=yes ;;
      -*) die "unknown flag $1: $(usage)" ;;
      *)
        [[ " ${CELLS[*]} ${FILE_CELLS[*]} " == *" $1 "* ]] ||
          die "$1 is not one of ${CELLS[*]} ${FILE_CELLS[*]}"
        cells+=("$1")
        ;;
    esac
    shift
  done
  if [[ $avx512 == off ]]; then
    [[ " ${cells[*]} " != *" end-to-end "* ]] ||
      die "end-to-end: only bench_decode can do without AVX-512, no worker"
    results=$WORK/results-no-avx512
    ((${#cells[@]})) || cells=("${STEP_CELLS[@]}")
  else
    results=$WORK/results
    ((${#cells[@]})) || cells=("${CELLS[@]}")
  fi
  [[ -f $BUILD/CMakeCache.txt || -x $NACRE ]] ||
    die "$BUILD is not configured: run make build"
}

# The first two cores that this process may run on.
find_cores() {
  local cores
  mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); ++i) print i }')
  cpus=([1]=${cores[0]})
  ((${#cores[@]} > 1)) && cpus[2]=${cores[0]},${cores[1]}
  read -ra under <<<"${NACRE_COMPARE_UNDER:-}"
}

# --- Programs ----------------------------------------------------------------

readonly JOBS=${NACRE_COMPARE_JOBS:-$(nproc)}

make_nacre() {
  [[ -f $BUILD/CMakeCache.txt ]] || return 0
  nice cmake --build "$BUILD" --parallel "$JOBS" --target nacre nacre-coordinator \
    nacre-draft-worker nacre-target-worker bench_decode bench_loading
}

# build_llama_cpp FOLDER TARGET... -- CMAKE_FLAG...
build_llama_cpp() {
  local folder=$WORK/$1 made=$WORK/$1/.complete-$2 targets=()
  shift
  while [[ $1 != -- ]]; do targets+=("$1") && shift; done
  shift
  [[ -f $made ]] && return
  echo "== building llama.cpp: ${targets[*]} ($folder)"
  cmake -S "$WORK/llama.cpp" -B "$folder" -DCMAKE_BUILD_TYPE=Release --log-level=WARNING \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMIT="$(<"$WORK/llama.cpp/commit")" \
    -DLLAMA_BUILD_NUMBER=0 "$@"
  nice cmake --build "$folder" --parallel "$JOBS" --target "${targets[@]}"
  touch "$made"
}

fetch_llama_cpp() {
  [[ -f $WORK/llama.cpp/.complete ]] && return
  local sdist package
  mkdir -p "$WORK/sdist"
  echo "== fetching $SDIST"
  compgen -G "$WORK/sdist/*.tar.gz" >/dev/null ||
    python3 -m pip download --no-deps --no-binary llama-cpp-python \
      --dest "$WORK/sdist" "$SDIST"
  sdist=$(compgen -G "$WORK/sdist/*.tar.gz")
  package=$(basename "$sdist" .tar.gz)
  rm -rf "$WORK/llama.cpp"
  mkdir "$WORK/llama.cpp"
  tar -xzf "$sdist" -C "$WORK/llama.cpp" --strip-components 3 \
    "$package/vendor/llama.cpp"
  rm -f "$WORK/llama.cpp/.git"  # it points to where nothing is
  tar -xzOf "$sdist" "$package/.git/modules/vendor/llama.cpp/HEAD" | cut -c -9 \
    >"$WORK/llama.cpp/commit" || echo unknown >"$WORK/llama.cpp/commit"
  touch "$WORK/llama.cpp/.complete"
}

make_llama_cpp() {
  local build=$WORK/llama.cpp-build from=$WORK/llama.cpp
  fetch_llama_cpp
  build_llama_cpp llama.cpp-build llama --
  if [[ ! $build/bin/llama_cpp_steps -nt scripts/llama_cpp_steps.cpp ]]; then
    c++ -O2 -std=c++17 -I"$from/include" -I"$from/ggml/include" \
      scripts/llama_cpp_steps.cpp -o "$build/bin/llama_cpp_steps" -L"$build/bin" \
      -Wl,--enable-new-dtags,-rpath,"$build/bin" -lllama -lggml -lggml-cpu -lggml-base
  fi
  [[ $avx512 == off ]] || return 0
  # The kernels alone; the program loads them in place of its own.
  build_llama_cpp llama.cpp-avx2 ggml-cpu -- -DGGML_NATIVE=OFF
  ! grep -qE 'avx512|march=native' "$WORK/llama.cpp-avx2/compile_commands.json" ||
    die "$WORK/llama.cpp-avx2 was built for AVX-512"
  local libraries
  libraries=$(LD_LIBRARY_PATH=$WORK/llama.cpp-avx2/bin ldd "$build/bin/llama_cpp_steps")
  [[ $libraries == *"$WORK/llama.cpp-avx2/bin/libggml-cpu"* ]] ||
    die "llama_cpp_steps does not load libggml-cpu of $WORK/llama.cpp-avx2"
}

llama_cpp() {  # PROGRAM FLAG...
  "${under[@]}" "$WORK/llama.cpp-build/bin/$1" "${@:2}"
}

# --- Checkpoints -------------------------------------------------------------

# make_once FILE COMMAND...: FILE is the last thing that COMMAND makes.
make_once() {
  local made=$1
  shift
  [[ -f $made ]] && return
  echo "== making $made"
  "$@"
}

write_shape() {  # SHAPE
  "$BUILD/bin/bench_loading" --hidden "${HIDDEN[$1]}" --layers "${LAYERS[$1]}" \
    --write "$WORK/models/$1.partial"
  rm -rf "$WORK/models/$1"
  mv "$WORK/models/$1.partial" "$WORK/models/$1"
}

quantize() {  # FROM TO TYPE: every matrix, the head's too, as Nacre does
  "$WORK/llama.cpp-build/bin/llama_cpp_steps" quantize "$1" "$2.partial" "$3" \
    >"$2.log" 2>&1 || die "quantize to $3: $(tail -n 3 "$2.log")"
  mv "$2.partial" "$2"
}

slow_down() {  # NAME LAYERS INTERMEDIATE
  rm -rf "$WORK/models/$1"
  "$NACRE" inflate --in "models/$1" --out "$WORK/models/$1.partial" --layers "$2" \
    --intermediate-size "$3"
  mv "$WORK/models/$1.partial" "$WORK/models/$1"
}

# As the quickstart does.
make_pair() {
  local name sizes
  for name in target draft; do
    sizes=$(sed -n "s/^readonly ${name^^}_LAYERS=\([0-9]*\) \
${name^^}_INTERMEDIATE=\([0-9]*\)$/\1 \2/p" scripts/quickstart.sh)
    # shellcheck disable=SC2086
    make_once "$WORK/models/$name/config.json" slow_down "$name" $sizes
    make_once "$WORK/models/$name.gguf" scripts/to_gguf.py "$WORK/models/$name" \
      "$WORK/models/$name.gguf"
  done
}

make_shape() {  # SHAPE TYPE
  local gguf=$WORK/models/$1
  make_once "$gguf/model.safetensors" write_shape "$1"
  make_once "$gguf-bf16.gguf" scripts/to_gguf.py "$gguf" "$gguf-bf16.gguf"
  [[ $2 == bf16 ]] ||
    make_once "$gguf-$2.gguf" quantize "$gguf-bf16.gguf" "$gguf-$2.gguf" "$2"
}

# --- Steps and prompts -------------------------------------------------------

nacre_steps() {  # SHAPE WEIGHTS THREADS OUT
  local model=$WORK/models/$1 weights=$2
  [[ $2 != q* ]] || model=$model-$2.gguf weights=auto
  "${under[@]}" "$BUILD/bin/bench_decode" --model "$model" --weights "$weights" \
    --cpus "${cpus[$3]}" --context "$CONTEXT" --rows "$ROWS" --repetitions "$STEPS" \
    --prompts "$PROMPTS" --avx512 "$avx512" --json "$4.partial" >"$4.log" 2>&1 ||
    die "bench_decode: $(tail -n 3 "$4.log")"
  mv "$4.partial" "$4"
}

llama_cpp_steps() {  # GGUF THREADS OUT
  local under=("${under[@]}" taskset -c "${cpus[$2]}") kernels=$WORK/llama.cpp-build
  [[ $avx512 == on ]] || kernels=$WORK/llama.cpp-avx2
  LD_LIBRARY_PATH=$kernels/bin llama_cpp llama_cpp_steps "$1" "$2" "$CONTEXT" "$ROWS" \
    "$STEPS" "$PROMPT" "$PROMPTS" >"$3.partial" 2>"$3.log" ||
    die "llama_cpp_steps: $(tail -n 3 "$3.log")"
  mv "$3.partial" "$3"
}

measure_steps() {  # SHAPE WEIGHTS THREADS
  local out=$results/$1-$2-$3 turn side sides
  local types=("$2") type=${OF_LLAMA_CPP[$2]}
  # What `auto` is where the CPU has AVX512-BF16, and what llama.cpp does.
  [[ $2 == bf16 && $avx512 == on ]] && types=(bf16a16)
  make_shape "$1" "$type"
  [[ -z $only_build ]] || return 0
  mkdir -p "$out"
  for ((turn = 1; turn <= turns; ++turn)); do
    sides=("${types[@]}" llama.cpp)
    ((turn % 2)) || sides=(llama.cpp "${types[@]}")
    for side in "${sides[@]}"; do
      [[ -f $out/$turn-$side.json ]] && continue
      echo "== $1-$2-$3, turn $turn of $turns: $side"
      if [[ $side == llama.cpp ]]; then
        llama_cpp_steps "$WORK/models/$1-$type.gguf" "$3" "$out/$turn-$side.json"
      else
        nacre_steps "$1" "$side" "$3" "$out/$turn-$side.json"
      fi
    done
  done
}

# --- Whole answers -----------------------------------------------------------

nacre_answers() {  # METHODS OUT FLAG...
  local methods=$1 out=$2
  shift 2
  "${under[@]}" "$NACRE" bench --target-model "$WORK/models/target" "$@" \
    --cpus "${cpus[2]}" --prompts "$PROMPT_FILE" --limit "$ANSWERS" --methods "$methods" \
    --max-tokens "$TOKENS" --ignore-eos --repeat 1 --json "$out.partial" \
    >"$out.log" 2>&1 || die "nacre bench: $(tail -n 3 "$out.log")"
  mv "$out.partial" "$out"
}

# Prompts of as many tokens, and TOKENS after each.
llama_cpp_plain() {  # PROMPT_TOKENS OUT
  llama_cpp llama-bench -m "$WORK/models/target.gguf" -t 1,2 -p 0 -n 0 \
    -pg "$1,$TOKENS" -r "$ANSWERS" -o json >"$2.partial" 2>"$2.log" ||
    die "llama-bench: $(tail -n 3 "$2.log")"
  mv "$2.partial" "$2"
}

llama_cpp_speculative() {  # DRAFTED OUT
  local answer
  for ((answer = 1; answer <= ANSWERS; ++answer)); do
    llama_cpp llama-speculative-simple -m "$WORK/models/target.gguf" \
      -md "$WORK/models/draft.gguf" --spec-type draft-simple \
      --spec-draft-n-max "$1" -f "$results/end-to-end/prompt-$answer.txt" \
      --no-escape -n "$TOKENS" --temp 0 --top-k 1 --ignore-eos -c 1024 -t 2 -td 2 \
      >"$2.partial-$answer" 2>&1 ||
      die "llama-speculative-simple: $(tail -n 3 "$2.partial-$answer")"
  done
  cat "$2".partial-* >"$2.partial"
  rm "$2".partial-*
  mv "$2.partial" "$2"
}

end_to_end_side() {  # SIDE OUT
  local draft=(--draft-model "$WORK/models/draft")
  case $1 in
    nacre) nacre_answers ar,async "$2" "${draft[@]}" ;;
    nacre-ar) nacre_answers ar "$2" --drafts 0 ;;
    plain) llama_cpp_plain "$(<"$results/end-to-end/prompt-tokens.txt")" "$2" ;;
    speculative-*) llama_cpp_speculative "${1#*-}" "$2" ;;
  esac
}

measure_end_to_end() {
  local out=$results/end-to-end turn side sides file
  [[ -n ${cpus[2]:-} ]] || die "end-to-end: this process may run on one core only"
  build_llama_cpp llama.cpp-build llama-bench llama-speculative-simple --
  make_pair
  [[ -z $only_build ]] || return 0
  mkdir -p "$out"
  scripts/compare_llama_cpp_tables.py --prompts "$out" "$PROMPT_FILE" "$ANSWERS"
  make_once "$out/1-nacre.json" end_to_end_side nacre "$out/1-nacre.json"
  scripts/compare_llama_cpp_tables.py --prompt-tokens "$out"
  sides=(nacre nacre-ar plain "${DRAFTED[@]/#/speculative-}")
  local under=("${under[@]}" taskset -c "${cpus[2]}")
  for ((turn = 1; turn <= turns; ++turn)); do
    for side in "${sides[@]}"; do
      file=$out/$turn-$side.$([[ $side == speculative-* ]] && echo txt || echo json)
      [[ -f $file ]] && continue
      echo "== end-to-end, turn $turn of $turns: $side"
      end_to_end_side "$side" "$file"
    done
    mapfile -t sides < <(printf '%s\n' "${sides[@]}" | tac)
  done
}

read_arguments "$@"
find_cores
mkdir -p "$WORK/models" "$results"
make_nacre
make_llama_cpp
for cell in "${cells[@]}"; do
  if [[ $cell == end-to-end ]]; then
    measure_end_to_end
    continue
  fi
  IFS=- read -r shape weights threads <<<"$cell"
  [[ -n ${cpus[$threads]:-} ]] || die "$cell: this process may run on one core only"
  measure_steps "$shape" "$weights" "$threads"
done
[[ -n $only_build ]] || scripts/compare_llama_cpp_tables.py "$results"
