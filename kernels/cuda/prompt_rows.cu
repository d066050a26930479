#include <cuda_runtime.h>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/prompt_rows.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread for each vector of 8 inputs.
__global__ void __launch_bounds__(kThreads)
    UnpackKernel(const uint4* packed, size_t count, int vectors,
                 size_t tile_vectors, int pairs_apart, uint4* out) {
  LaunchDependents();
  WaitForPrevious();
  constexpr int kBlockVectors = kBlockInputs / kVectorInputs;
  const size_t i = size_t{kThreads} * blockIdx.x + threadIdx.x;
  if (i >= count) return;
  const int output = static_cast<int>(i / vectors);
  const int vector = static_cast<int>(i % vectors);
  const int in_pairs = output % (2 * pairs_apart);  // of these as many
  const int other = in_pairs / pairs_apart;         // 1: the second of its pair
  const int pair =
      output / (2 * pairs_apart) * pairs_apart + in_pairs % pairs_apart;
  const size_t tile = pair / kPlainPairs;
  const size_t block = static_cast<size_t>(vector / kBlockVectors) *
                       kTileOutputs * kBlockVectors;
  out[i] = packed[tile * tile_vectors + block +
                  Bf16Slot(pair % kPlainPairs + other * kPlainPairs,
                           vector % kBlockVectors)];
}

__global__ void __launch_bounds__(kThreads)
    CopyAndAddKernel(const float* x, const float* residual, size_t count,
                     float* out) {
  LaunchDependents();
  WaitForPrevious();
  const size_t i = size_t{kThreads} * blockIdx.x + threadIdx.x;
  if (i >= count) return;
  out[i] = residual == nullptr ? x[i] : x[i] + residual[i];
}

}  // namespace

cudaError_t UnpackRows(const Queue& queue, const void* packed, int outputs,
                       int inputs, int pairs_apart, uint16_t* out) {
  const int vectors = inputs / kVectorInputs;
  const size_t count =
      static_cast<size_t>(outputs) * static_cast<size_t>(vectors);
  return LaunchKernel(
      queue, {BlocksFor(count, kThreads), kThreads}, UnpackKernel,
      static_cast<const uint4*>(packed), count, vectors,
      PackedTileBytes(GemmFormat::kBf16, inputs) / sizeof(uint4), pairs_apart,
      reinterpret_cast<uint4*>(out));
}

cudaError_t CopyAndAdd(const Queue& queue, const float* x,
                       const float* residual, size_t count, float* out) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      CopyAndAddKernel, x, residual, count, out);
}

}  // namespace nacre::kernels::cuda
