#!/usr/bin/env bash
# Builds, checks and times the CUDA kernels on a machine with a GPU. Needs
# CUDA's compiler and nothing else of what Nacre is built from; where there is
# no GPU it builds and skips.   usage: scripts/gpu_check.sh [OUTPUT_DIR]
#
# Logs go to OUTPUT_DIR (default build-gpu), the benchmark's numbers to
# bench_cuda_gemm.json there; its table comes last.
set -euo pipefail
cd "$(dirname "$0")/.."

output=${1:-build-gpu}
mkdir -p "$output"
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc)
flags=(-std=c++20 -O2 -I. --fmad=false --Werror all-warnings
  "-gencode=arch=compute_80,code=sm_80"
  "-gencode=arch=compute_90,code=[sm_90,compute_90]")

kernels=$output/gemm.o
"$nvcc" "${flags[@]}" -Xptxas -v -c kernels/cuda/gemm.cu \
  -o "$kernels" >"$output/ptxas.txt" 2>&1 || {
  cat "$output/ptxas.txt"
  exit 1
}
grep -E 'Compiling|spill|Used' "$output/ptxas.txt"
linked=("$kernels" kernels/cuda/gemm_layout.cc kernels/cuda/gemm_plan.cc)
"$nvcc" "${flags[@]}" tests/kernels/cuda/gemm_test.cu "${linked[@]}" \
  -o "$output/gemm_test"
"$nvcc" "${flags[@]}" tests/benchmarks/bench_cuda_gemm.cu "${linked[@]}" \
  -o "$output/bench_cuda_gemm"

if command -v cuobjdump >/dev/null; then
  echo "-- instructions meant: 16-byte asynchronous copies, tensor cores"
  cuobjdump --dump-sass "$kernels" |
    grep -oE '(LDGSTS|LDS|HMMA|HFMA2|HMUL2|LDL|STL)[.A-Z0-9]*' | sort | uniq -c
fi

status=0
"$output/gemm_test" | tee "$output/gemm_test.txt" || status=$?
if ((status == 77)); then exit 0; fi
((status == 0)) || exit "$status"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    echo "-- $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$output/gemm_test" --quick >"$output/$tool.txt" 2>&1 || {
      tail -n 40 "$output/$tool.txt"
      exit 1
    }
    tail -n 1 "$output/$tool.txt"
  done
fi
"$output/bench_cuda_gemm" 15 "$output/bench_cuda_gemm.json" |
  tee "$output/bench_cuda_gemm.txt"
