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

// One block for each pair of a row (x) and a head of it (y), which has `cols`
// elements. Zeros behind the last column; Element is float or, for bf16,
// uint16_t. `vector`: rows are aligned to 16 bytes.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    NormalizeKernel(const float* x, int row_stride, int cols,
                    const float* weight, float epsilon, Element* out,
                    int out_stride, int out_cols, bool vector) {
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const size_t head = static_cast<size_t>(blockIdx.y) * cols;
  const float* const row =
      x + static_cast<size_t>(blockIdx.x) * row_stride + head;
  Element* const to = out + static_cast<size_t>(blockIdx.x) * out_stride + head;
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
  for (int i = threadIdx.x; i < out_cols; i += kThreads) {
    Store(i < cols ? row[i] * scale * weight[i] : 0.0f, to + i);
  }
}

bool IsAligned(const float* x) {
  return reinterpret_cast<uintptr_t>(x) % sizeof(float4) == 0;
}

template <typename Element>
cudaError_t Normalize(const Queue& queue, const float* x, int rows, int cols,
                      const float* weight, float epsilon, Element* out,
                      int out_cols) {
  const bool vector = cols % 4 == 0 && IsAligned(x);
  return LaunchKernel(
      queue,
      {dim3(static_cast<unsigned>(rows)), kThreads, kWarps * sizeof(float)},
      NormalizeKernel<Element>, x, cols, cols, weight, epsilon, out, out_cols,
      out_cols, vector);
}

}  // namespace

cudaError_t NormalizeRows(const Queue& queue, const float* x, int rows,
                          int cols, const float* weight, float epsilon,
                          float* out) {
  return Normalize(queue, x, rows, cols, weight, epsilon, out, cols);
}

cudaError_t NormalizeAndRoundRows(const Queue& queue, const float* x, int rows,
                                  int cols, int padded_cols,
                                  const float* weight, float epsilon,
                                  uint16_t* out) {
  return Normalize(queue, x, rows, cols, weight, epsilon, out, padded_cols);
}

cudaError_t NormalizeHeads(const Queue& queue, float* x, int rows,
                           int row_stride, int num_heads, int head_dim,
                           const float* weight, float epsilon) {
  const bool vector = head_dim % 4 == 0 && row_stride % 4 == 0 && IsAligned(x);
  const dim3 blocks(static_cast<unsigned>(rows),
                    static_cast<unsigned>(num_heads));
  return LaunchKernel(queue, {blocks, kThreads, kWarps * sizeof(float)},
                      NormalizeKernel<float>, x, row_stride, head_dim, weight,
                      epsilon, x, row_stride, head_dim, vector);
}

}  // namespace nacre::kernels::cuda
