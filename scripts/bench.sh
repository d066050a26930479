#!/usr/bin/env bash
# Every benchmark of a build tree, one after another so that they do not disturb
# each other: limits of the machine, products, attention, whole models by type of
# weight, on one core and on two, sampling.   usage: scripts/bench.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
bin=$build/bin
if [[ ! -x "$bin/bench_decode" ]]; then
  echo "bench: error: no benchmark was built under $build" >&2
  exit 1
fi

# The cores that this process may run on, "0,1" of two.
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
  awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); ++i) print i }')
one=${cores[0]}
two=${cores[1]:+$one,${cores[1]}}

echo "== limits of the machine"
"$bin/bench_bandwidth" --cpus "${two:-$one}"
echo "== matrix products, one core"
"$bin/bench_gemm" --cpus "$one"
echo "== attention, one core"
for type in f32 bf16; do
  "$bin/bench_attention" --cpus "$one" --kv-type "$type" \
    --contexts 1024,32768 --rows 1,8
done
for weights in bf16 bf16a16 f32 int8 int4; do
  for cpus in "$one" ${two:+"$two"}; do
    echo "== whole model, $weights, cores $cpus"
    # Few layers of many weights.
    "$bin/bench_decode" --weights "$weights" --cpus "$cpus" \
      --layers "$([[ "$weights" == f32 ]] && echo 6 || echo 12)"
  done
done
echo "== whole model, bf16, one core, after 16384 positions"
"$bin/bench_decode" --layers 4 --cpus "$one" --context 16384 --rows 1,4,8
echo "== drawing tokens, one core"
"$bin/bench_sampling" --cpus "$one" --repetitions 5
echo "== the coordinator's dispatcher, one core"
taskset -c "$one" "$bin/bench_dispatcher"
if [[ -x "$bin/bench_cuda_gemm" ]] && nvidia-smi >/dev/null 2>&1; then
  echo "== GPU"
  "$bin/bench_cuda_gemm"
fi
