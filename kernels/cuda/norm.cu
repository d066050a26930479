#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/row_norm.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kThreads = kNormThreads;

__device__ __forceinline__ float BlockSum(const float4& sums,
                                          float* warp_sums) {
  return NormThreadsSum(sums, warp_sums, [] { __syncthreads(); });
}

template <typename Element, int kVectors>
__global__ void __launch_bounds__(kThreads)
    NormalizeKernel(const float* x, int row_stride, int cols,
                    const float* weight, float epsilon, Element* out,
                    int out_stride, int out_cols, bool vector) {
  extern __shared__ uint4 shared[];
  NormalizeHead<KernelBlock, Element, kVectors>({shared}, x, row_stride, cols,
                                                weight, epsilon, out,
                                                out_stride, out_cols, vector);
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
  for (int i = 4 * threadIdx.x; i < cols; i += kNormStep) {
    const float4 v = LoadFour(row + i, cols - i, vector);
    sums.x += v.x;
    sums.y += v.y;
    sums.z += v.z;
    sums.w += v.w;
  }
  const float mean = BlockSum(sums, warp_sums) / static_cast<float>(cols);
  sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = 4 * threadIdx.x; i < cols; i += kNormStep) {
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
      BlockSum(sums, warp_sums + kNormWarps) / static_cast<float>(cols);
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

// kNone: of more elements than may be a phase.
template <typename Element>
PhaseKind PhaseOf(int cols) {
  if (std::is_same_v<Element, float>) {
    return cols <= kNormStep ? PhaseKind::kNormF32 : PhaseKind::kNone;
  }
  return cols <= kNormStep       ? PhaseKind::kNorm1
         : cols <= 4 * kNormStep ? PhaseKind::kNorm4
                                 : PhaseKind::kNorm8;
}

template <typename Element>
cudaError_t Normalize(const Queue& queue, const Heads& heads, const float* x,
                      const float* weight, float epsilon, Element* out) {
  const auto kernel = heads.cols <= kNormStep ? NormalizeKernel<Element, 1>
                      : heads.cols <= 4 * kNormStep
                          ? NormalizeKernel<Element, 4>
                          : NormalizeKernel<Element, 8>;
  const bool vector = heads.cols % 4 == 0 && heads.row_stride % 4 == 0 &&
                      heads.out_cols % 4 == 0 && heads.out_stride % 4 == 0 &&
                      IsAligned(x) && IsAligned(weight) && IsAligned(out);
  const dim3 blocks(static_cast<unsigned>(heads.rows),
                    static_cast<unsigned>(heads.count));
  return LaunchKernel(queue,
                      {blocks, kThreads, kNormWarps * sizeof(float),
                       PhaseOf<Element>(heads.cols)},
                      kernel, x, heads.row_stride, heads.cols, weight, epsilon,
                      out, heads.out_stride, heads.out_cols, vector);
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
  return LaunchKernel(queue,
                      {dim3(static_cast<unsigned>(rows)), kThreads,
                       2 * kNormWarps * sizeof(float)},
                      CenterAndNormalizeKernel, x, cols, weight, bias, epsilon,
                      out, vector);
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
