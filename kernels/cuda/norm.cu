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

// Vectors of `from` that this thread has of a stretch of kVectors turns.
template <int kVectors>
__device__ __forceinline__ void LoadVectors(const float* from, int begin,
                                            int cols, bool vector,
                                            float4 (&to)[kVectors]) {
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int i = begin + j * kStep + 4 * static_cast<int>(threadIdx.x);
    to[j] = LoadFour(from + i, cols - i, vector);
  }
}

// One block for each pair of a row (x) and a head of it (y), which has `cols`
// elements. Zeros past the last column; Element is float or, for bf16,
// uint16_t. `vector`: all rows are aligned to four elements. A stretch of
// kVectors turns is loaded at once, the weights of the first while the kernel
// before still runs. This is one of few blocks, and what it waits for is
// memory.
template <typename Element, int kVectors>
__global__ void __launch_bounds__(kThreads)
    NormalizeKernel(const float* x, int row_stride, int cols,
                    const float* weight, float epsilon, Element* out,
                    int out_stride, int out_cols, bool vector) {
  constexpr int kStretch = kVectors * kStep;
  extern __shared__ uint4 shared[];
  LaunchDependents();
  float4 weights[kVectors];
  LoadVectors(weight, 0, cols, vector, weights);
  WaitForPrevious();
  const size_t head = static_cast<size_t>(blockIdx.y) * cols;
  const float* const row =
      x + static_cast<size_t>(blockIdx.x) * row_stride + head;
  Element* const to = out + static_cast<size_t>(blockIdx.x) * out_stride + head;
  float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 values[kVectors] = {};
  for (int begin = 0; begin < cols; begin += kStretch) {
    LoadVectors(row, begin, cols, vector, values);
#pragma unroll
    for (const float4& v : values) {
      sums.x = fmaf(v.x, v.x, sums.x);
      sums.y = fmaf(v.y, v.y, sums.y);
      sums.z = fmaf(v.z, v.z, sums.z);
      sums.w = fmaf(v.w, v.w, sums.w);
    }
  }
  const float total = BlockSum(sums, reinterpret_cast<float*>(shared));
  const float scale = 1.0f / sqrtf(total / static_cast<float>(cols) + epsilon);
  for (int begin = 0; begin < out_cols; begin += kStretch) {
    if (cols > kStretch) {
      LoadVectors(row, begin, cols, vector, values);
      LoadVectors(weight, begin, cols, vector, weights);
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int i = begin + j * kStep + 4 * static_cast<int>(threadIdx.x);
      const float4& v = values[j];
      const float4& w = weights[j];
      // Past the last column zeros, whatever the scale is.
      const int left = cols - i;
      const float4 scaled = {left > 0 ? v.x * scale * w.x : 0.0f,
                             left > 1 ? v.y * scale * w.y : 0.0f,
                             left > 2 ? v.z * scale * w.z : 0.0f,
                             left > 3 ? v.w * scale * w.w : 0.0f};
      StoreFour(scaled, out_cols - i, vector, to + i);
    }
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

bool IsAligned(const void* x) {
  return reinterpret_cast<uintptr_t>(x) % sizeof(float4) == 0;
}

// Heads of rows, in x and in out.
struct Heads {
  int rows;
  int count;  // of a row
  int cols;
  int row_stride;
  int out_stride;
  int out_cols;
};

template <typename Element>
cudaError_t Normalize(const Queue& queue, const Heads& heads, const float* x,
                      const float* weight, float epsilon, Element* out) {
  const auto kernel = heads.cols <= kStep       ? NormalizeKernel<Element, 1>
                      : heads.cols <= 4 * kStep ? NormalizeKernel<Element, 4>
                                                : NormalizeKernel<Element, 8>;
  const bool vector = heads.cols % 4 == 0 && heads.row_stride % 4 == 0 &&
                      heads.out_cols % 4 == 0 && heads.out_stride % 4 == 0 &&
                      IsAligned(x) && IsAligned(weight) && IsAligned(out);
  const dim3 blocks(static_cast<unsigned>(heads.rows),
                    static_cast<unsigned>(heads.count));
  return LaunchKernel(queue, {blocks, kThreads, kWarps * sizeof(float)}, kernel,
                      x, heads.row_stride, heads.cols, weight, epsilon, out,
                      heads.out_stride, heads.out_cols, vector);
}

}  // namespace

cudaError_t NormalizeRows(const Queue& queue, const float* x, int rows,
                          int cols, const float* weight, float epsilon,
                          float* out) {
  return Normalize(queue, {rows, 1, cols, cols, cols, cols}, x, weight, epsilon,
                   out);
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
  return Normalize(queue, {rows, 1, cols, cols, padded_cols, padded_cols}, x,
                   weight, epsilon, out);
}

cudaError_t NormalizeHeads(const Queue& queue, float* x, int rows,
                           int row_stride, int num_heads, int head_dim,
                           const float* weight, float epsilon) {
  return Normalize(
      queue, {rows, num_heads, head_dim, row_stride, row_stride, head_dim}, x,
      weight, epsilon, x);
}

}  // namespace nacre::kernels::cuda
