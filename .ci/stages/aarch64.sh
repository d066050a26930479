#!/usr/bin/env bash
# What has vectors, on an emulated 64-bit Arm. The last stage: its libraries may
# bring newer versions of those of this machine.
source "$(dirname "$0")/common.sh"

# Tests that run there: what must have the same bits.
readonly AARCH64_TESTS="^(kernels_|common_deterministic|common_philox|transformer_test|\
model_simd|rope_|distribution|probability|logprobs|gumbel|sampl|top_values)"

scripts/install_deps.sh --cross-arm64
cmake --preset aarch64 --log-level=NOTICE
# An old CPU, without dot products of bytes; then one with everything.
QEMU_CPU=cortex-a53 test_chosen build-aarch64 --tests-regex \
  '^kernels_cpu_quantized'
test_chosen build-aarch64 --tests-regex "$AARCH64_TESTS" \
  --label-exclude 'slow|cuda'
drop_tree build-aarch64
