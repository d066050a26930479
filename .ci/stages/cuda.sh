#!/usr/bin/env bash
# nvcc compiles every kernel, and none spills registers.
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
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
# What the compiler says of registers is for the check alone.
# shellcheck disable=SC2016 # The inner shell expands it.
sources '*.cu' | xargs -0 --max-procs="$JOBS" --replace=FILE bash -c '
  echo "nvcc $1"
  said=$2/${1//\//_}
  "${@:3}" -Xptxas=-v -c "$1" -o /dev/null 2>"$said" || {
    cat "$said"
    exit 1
  }' _ FILE "$said" "$nvcc" "${flags[@]}"
scripts/gpu_resources.py --check "$said"/*
