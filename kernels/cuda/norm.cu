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

// The sum of all threads' `sums`; every thread has it. `warp_sums` [kWarps] is
// shared; all threads call it, and none of an earlier call still reads it.
__device__ __forceinline__ float BlockSum(const float4& sums,
                                          float* warp_sums) {
  const float warp_sum = WarpSum((sums.x + sums.y) + (sums.z + sums.w));
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = warp_sum;
  __syncthreads();
  float total = warp_sums[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) total += warp_sums[warp];
  return total;
}

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
  const float total = BlockSum(sums, reinterpret_cast<float*>(shared));
  const float scale = 1.0f / sqrtf(total / static_cast<float>(cols) + epsilon);
  for (int i = threadIdx.x; i < out_cols; i += kThreads) {
    Store(i < cols ? row[i] * scale * weight[i] : 0.0f, to + i);
  }
}

// One block a row.
__global__ void __launch_bounds__(kThreads)
    CenterAndNormalizeKernel(const float* x, int cols, const float* weight,
                             const float* bias, float epsilon, float* out,
                             bool vector) {
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  auto* const warp_sums = reinterpret_cast<float*>(shared);
  const size_t begin = static_cast<size_t>(blockIdx.x) * cols;
  const float* const row = x + begin;
  float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = 4 * threadIdx.x; i < cols; i += kStep) {
    const float4 v = LoadFour(row + i, cols - i, vector);
    sums.x += v.x;
    sums.y += v.y;
    sums.z += v.z;
    sums.w += v.w;
  }
  const float mean = BlockSum(sums, warp_sums) / static_cast<float>(cols);
  sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = 4 * threadIdx.x; i < cols; i += kStep) {
    const float4 v = LoadFour(row + i, cols - i, vector);
    const auto add = [mean, left = cols - i](float value, int at, float* sum) {
      const float difference = at < left ? value - mean : 0.0f;
      *sum = fmaf(difference, difference, *sum);
    };
    add(v.x, 0, &sums.x);
    add(v.y, 1, &sums.y);
    add(v.z, 2, &sums.z);
    add(v.w, 3, &sums.w);
  }
  const float variance =
      BlockSum(sums, warp_sums + kWarps) / static_cast<float>(cols);
  const float scale = 1.0f / sqrtf(variance + epsilon);
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    out[begin + i] = fmaf((row[i] - mean) * scale, weight[i], bias[i]);
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

cudaError_t CenterAndNormalizeRows(const Queue& queue, const float* x, int rows,
                                   int cols, const float* weight,
                                   const float* bias, float epsilon,
                                   float* out) {
  const bool vector = cols % 4 == 0 && IsAligned(x);
  return LaunchKernel(
      queue,
      {dim3(static_cast<unsigned>(rows)), kThreads, 2 * kWarps * sizeof(float)},
      CenterAndNormalizeKernel, x, cols, weight, bias, epsilon, out, vector);
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
