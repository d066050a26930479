#!/usr/bin/env bash
# nvcc compiles every kernel, none spills registers, and docs/roofline.md has what
# they take.
source "$(dirname "$0")/common.sh"

# GPU generations that the kernels must compile for. 90a has kernels of its own.
readonly CUDA_ARCHITECTURES=(80 90 90a)

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [[ -z "$nvcc" ]]; then
  echo "no nvcc on PATH or in /usr/local/cuda/bin: CI always compiles CUDA"
  exit 1
fi
if [[ -z "$(git ls-files -- '*.cu')" ]]; then
  echo "git lists no .cu files: nothing was compiled"
  exit 1
fi
flags=(-std=c++20 -O2 -I. --fmad=false --Werror all-warnings)
for arch in "${CUDA_ARCHITECTURES[@]}"; do
  flags+=("-gencode=arch=compute_$arch,code=sm_$arch")
done
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
# What the compiler says of registers is for the check alone.
# shellcheck disable=SC2016 # The inner shell expands it.
sources '*.cu' | xargs -0 --max-procs="$JOBS" --replace=FILE bash -c '
  echo "nvcc $1"
  kept=$2/$(basename "$1")
  mkdir "$kept"
  "${@:3}" -Xptxas=-v --keep --keep-dir "$kept" -c "$1" -o /dev/null \
    2>"$kept/said" || {
    cat "$kept/said"
    exit 1
  }' _ FILE "$kept" "$nvcc" "${flags[@]}"
scripts/gpu_resources.py --nvcc "$nvcc" --check "$kept"
