// The RMS norm of one row by kNormThreads threads, which may be a part of a
// block: of norm.cu's kernels, and of products that norm their inputs
// themselves. So both have the same bits.

#ifndef KERNELS_CUDA_ROW_NORM_CUH_
#define KERNELS_CUDA_ROW_NORM_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/math.cuh"

namespace nacre::kernels::cuda {

inline constexpr int kNormWarps = 8;
inline constexpr int kNormThreads = 32 * kNormWarps;
inline constexpr int kNormStep = 4 * kNormThreads;  // elements of their turn

// The sum of all threads' `sums`; every thread has it. `warp_sums` [kNormWarps]
// is shared; all threads call it, and none of an earlier call still reads it.
// `meet` is a barrier of the threads.
template <typename Meet>
__device__ __forceinline__ float NormThreadsSum(const float4& sums,
                                                float* warp_sums,
                                                const Meet& meet) {
  const float warp_sum = WarpSum((sums.x + sums.y) + (sums.z + sums.w));
  const int thread = threadIdx.x % kNormThreads;
  if (thread % 32 == 0) warp_sums[thread / 32] = warp_sum;
  meet();
  float total = warp_sums[0];
#pragma unroll
  for (int warp = 1; warp < kNormWarps; ++warp) total += warp_sums[warp];
  return total;
}

// A stretch of kVectors turns is loaded at once, the weights of the first
// before anything else is known. The threads are few, and what they wait for is
// memory.
template <int kVectors>
struct RowNorm {
  static constexpr int kStretch = kVectors * kNormStep;

  int cols;
  const float* weight;
  float epsilon;
  bool vector;  // rows and weights are aligned to four elements
  float4 weights[kVectors];

  __device__ __forceinline__ RowNorm(int cols, const float* weight,
                                     float epsilon, bool vector)
      : cols(cols), weight(weight), epsilon(epsilon), vector(vector) {
    Load(weight, 0, weights);
  }

  // Calls store(i, four) with elements i to i + 3 of the normed row, zeros past
  // the last, for all i below `out_cols` and perhaps some more.
  template <typename Meet, typename Store>
  __device__ __forceinline__ void Run(const float* row, int out_cols,
                                      float* warp_sums, const Meet& meet,
                                      const Store& store) {
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 values[kVectors] = {};
    for (int begin = 0; begin < cols; begin += kStretch) {
      Load(row, begin, values);
#pragma unroll
      for (const float4& v : values) {
        sums.x = fmaf(v.x, v.x, sums.x);
        sums.y = fmaf(v.y, v.y, sums.y);
        sums.z = fmaf(v.z, v.z, sums.z);
        sums.w = fmaf(v.w, v.w, sums.w);
      }
    }
    const float total = NormThreadsSum(sums, warp_sums, meet);
    const float scale =
        1.0f / sqrtf(total / static_cast<float>(cols) + epsilon);
    for (int begin = 0; begin < out_cols; begin += kStretch) {
      if (cols > kStretch) {
        Load(row, begin, values);
        Load(weight, begin, weights);
      }
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int i = At(begin, j);
        const float4& v = values[j];
        const float4& w = weights[j];
        // Past the last column zeros, whatever the scale is.
        const int left = cols - i;
        store(i, float4{left > 0 ? v.x * scale * w.x : 0.0f,
                        left > 1 ? v.y * scale * w.y : 0.0f,
                        left > 2 ? v.z * scale * w.z : 0.0f,
                        left > 3 ? v.w * scale * w.w : 0.0f});
      }
    }
  }

 private:
  __device__ __forceinline__ static int At(int begin, int j) {
    const int thread = threadIdx.x % kNormThreads;
    return begin + j * kNormStep + 4 * thread;
  }
  __device__ __forceinline__ void Load(const float* from, int begin,
                                       float4 (&to)[kVectors]) const {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int i = At(begin, j);
      to[j] = LoadFour(from + i, cols - i, vector);
    }
  }
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ROW_NORM_CUH_
