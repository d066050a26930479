#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kStep = 4 * kThreads;  // elements of a block's turn

// One block a row. `vector`: rows are aligned to 16 bytes.
__global__ void __launch_bounds__(kThreads)
    NormalizeKernel(const float* x, int cols, const float* weight,
                    float epsilon, float* out, bool vector) {
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const size_t offset = static_cast<size_t>(blockIdx.x) * cols;
  const float* const row = x + offset;
  float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = 4 * threadIdx.x; i < cols; i += kStep) {
    const float4 v = LoadFour(row + i, cols - i, vector);
    sums.x = fmaf(v.x, v.x, sums.x);
    sums.y = fmaf(v.y, v.y, sums.y);
    sums.z = fmaf(v.z, v.z, sums.z);
    sums.w = fmaf(v.w, v.w, sums.w);
  }
  const float warp_sum = WarpSum((sums.x + sums.y) + (sums.z + sums.w));
  auto* const warp_sums = reinterpret_cast<float*>(shared);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = warp_sum;
  __syncthreads();
  float total = warp_sums[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) total += warp_sums[warp];
  const float scale = 1.0f / sqrtf(total / static_cast<float>(cols) + epsilon);
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    out[offset + i] = row[i] * scale * weight[i];
  }
}

}  // namespace

cudaError_t NormalizeRows(const Queue& queue, const float* x, int rows,
                          int cols, const float* weight, float epsilon,
                          float* out) {
  const bool vector =
      cols % 4 == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(float4) == 0;
  return LaunchKernel(
      queue,
      {dim3(static_cast<unsigned>(rows)), kThreads, kWarps * sizeof(float)},
      NormalizeKernel, x, cols, weight, epsilon, out, vector);
}

}  // namespace nacre::kernels::cuda
