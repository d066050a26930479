#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/f32_gemm.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 8;    // that share what is read of the weights
constexpr int kStep = 128;  // inputs of a warp's turn

__device__ __forceinline__ void MultiplyAddFour(const float4& a,
                                                const float4& b, float4* sum) {
  sum->x = fmaf(a.x, b.x, sum->x);
  sum->y = fmaf(a.y, b.y, sum->y);
  sum->z = fmaf(a.z, b.z, sum->z);
  sum->w = fmaf(a.w, b.w, sum->w);
}

// A warp computes one output (x) of kRows rows (y). `vector`: rows of both
// operands are aligned to 16 bytes.
__global__ void __launch_bounds__(kThreads)
    F32GemmKernel(const float* x, int rows, const float* weights, int outputs,
                  int inputs, const float* residual, float* y, bool vector) {
  LaunchDependents();
  WaitForPrevious();
  const int lane = threadIdx.x % 32;
  const int output = blockIdx.x * kWarps + threadIdx.x / 32;
  if (output >= outputs) return;
  const int first_row = blockIdx.y * kRows;
  const int count = min(kRows, rows - first_row);
  const float* const w = weights + static_cast<size_t>(output) * inputs;
  const float* const first = x + static_cast<size_t>(first_row) * inputs;
  float4 sums[kRows] = {};
  for (int i = 4 * lane; i < inputs; i += kStep) {
    const float4 weight = LoadFour(w + i, inputs - i, vector);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (row < count) {
        MultiplyAddFour(LoadFour(first + static_cast<size_t>(row) * inputs + i,
                                 inputs - i, vector),
                        weight, &sums[row]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    if (row >= count) continue;
    const float4 s = sums[row];
    const float total = WarpSum((s.x + s.y) + (s.z + s.w));
    if (lane == 0) {
      const size_t at = static_cast<size_t>(first_row + row) * outputs + output;
      y[at] = residual != nullptr ? total + residual[at] : total;
    }
  }
}

bool Aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(float4) == 0;
}

}  // namespace

cudaError_t F32Gemm(const Queue& queue, const float* x, int rows,
                    const float* weights, int outputs, int inputs,
                    const float* residual, float* y) {
  const bool vector = inputs % 4 == 0 && Aligned(x) && Aligned(weights);
  const dim3 blocks(BlocksFor(static_cast<size_t>(outputs), kWarps).x,
                    BlocksFor(static_cast<size_t>(rows), kRows).x);
  return LaunchKernel(queue, {blocks, kThreads}, F32GemmKernel, x, rows,
                      weights, outputs, inputs, residual, y, vector);
}

}  // namespace nacre::kernels::cuda
