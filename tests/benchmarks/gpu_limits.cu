#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.cuh"
#include "tests/benchmarks/gpu_limits.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kReadThreads = 512;
constexpr int kLoads = kReadVectors / kReadThreads;  // of a thread at a time
constexpr int kReadBlocks = 4;                       // of a multiprocessor
constexpr int kWarpThreads = 32;

__global__ void __launch_bounds__(kReadThreads)
    ReadKernel(const uint4* values, size_t count, uint32_t* sink) {
  uint32_t sum = 0;
  const size_t step = size_t{1} * gridDim.x * kReadVectors;
  for (size_t base = size_t{1} * blockIdx.x * kReadVectors; base < count;
       base += step) {
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = values[base + i * kReadThreads + threadIdx.x];
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      sum ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  if (sum == 0x12345678) *sink = sum;  // hardly ever, but it must be computed
}

// bf16 of either sign, magnitude 1/16 to 1/8, two to a word.
__device__ __forceinline__ uint32_t RandomPair(uint32_t index) {
  uint32_t x = (index + 1) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca6bu;
  x ^= x >> 13;
  return (x & 0x81ff81ffu) | 0x3d803d80u;
}

__global__ void __launch_bounds__(MultiplyGrid::kWarps* kWarpThreads)
    MultiplyKernel(int steps, uint32_t* sink) {
  float4 sums[kProducts];
  uint32_t operands[6];
  const uint32_t thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < 6; ++i) operands[i] = RandomPair(6 * thread + i);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    const float first = static_cast<float>(i);
    sums[i] = {first, first, first, first};
  }
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      MultiplyAdd(sums[i], operands[0], operands[1], operands[2], operands[3],
                  operands[4], operands[5]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    sum += sums[i].x + sums[i].y + sums[i].z + sums[i].w;
  }
  if (sum == 0.123456f) *sink = 1;
}

}  // namespace

cudaError_t ReadAll(cudaStream_t stream, int multiprocessors,
                    const uint4* values, size_t count, uint32_t* sink) {
  const Grid grid = {dim3(static_cast<unsigned>(kReadBlocks * multiprocessors)),
                     kReadThreads, 0};
  return LaunchKernel({stream, false}, grid, ReadKernel, values, count, sink);
}

cudaError_t MultiplyFromRegisters(cudaStream_t stream, const MultiplyGrid& grid,
                                  int steps, uint32_t* sink) {
  const Grid blocks = {dim3(static_cast<unsigned>(grid.blocks)),
                       MultiplyGrid::kWarps * kWarpThreads, 0};
  return LaunchKernel({stream, false}, blocks, MultiplyKernel, steps, sink);
}

}  // namespace nacre::kernels::cuda
