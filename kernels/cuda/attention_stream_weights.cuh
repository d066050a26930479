// Attention over bf16 keys and values of up to 128 dimensions: how the scores
// of a step of 64 positions become weights. Lane 4g + t of a warp has queries g
// and g + 8: "half" 0 and 1.

#ifndef KERNELS_CUDA_ATTENTION_STREAM_WEIGHTS_CUH_
#define KERNELS_CUDA_ATTENTION_STREAM_WEIGHTS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_stream_block.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu and persistent.cu include this

// Scores of a step, of the positions that LanePosition of the block tells. x
// and y are those of query g, z and w those of query g + 8.
using StepScores = float4[kStep / 8];

// Sums over positions of a split so far, or of splits. x and y of values[j] are
// dimensions 8j + 2t and 8j + 2t + 1 for query g. z and w are those for query g
// + 8. Likewise the totals of the weights, which every lane has.
template <int kDims>
struct StreamSums {
  float maxima[2];
  float4 totals;
  float4 values[kDims / 8];

  __device__ void Clear() {
    maxima[0] = maxima[1] = __int_as_float(kMinusInfinityBits);
    totals = {};
#pragma unroll
    for (int j = 0; j < kDims / 8; ++j) values[j] = {};
  }
};

// 2^x of x <= 0 within 2^-17 of itself, where it becomes bf16: 11 instructions.
// 0 below 2^-126.5, NaN of NaN.
__device__ __forceinline__ float WeightExp2(float x) {
  constexpr float kRound = 12582912.0f;
  x = MaxOrNan(x, -127.0f);
  const float rounded = x + kRound;
  const float r = x - (rounded - kRound);
  // (2^r - 1) / r through the Chebyshev nodes of |r| <= 1/2.
  float p = fmaf(9.6567103e-3f, r, 5.5838283e-2f);
  p = fmaf(p, r, 2.4022530e-1f);
  p = fmaf(p, r, 6.9313673e-1f);
  p = fmaf(p, r, 1.0f);
  // Of -127: zero.
  return p * __uint_as_float((__float_as_uint(rounded) << 23) + 0x3f800000u);
}

// Caps scores, which are to base 2.
__device__ __forceinline__ void CapStep(float soft_cap, StepScores& scores) {
  const float cap = soft_cap * 1.44269504088896341f;
#pragma unroll
  for (float4& score : scores) {
    score = {Capped(score.x, cap), Capped(score.y, cap), Capped(score.z, cap),
             Capped(score.w, cap)};
  }
}

// `lane_begin`: of LaneBegin of the block.
template <typename Block>
__device__ __forceinline__ void MaskStep(const Block& block,
                                         const int (&positions)[2],
                                         int lane_begin, int window,
                                         StepScores& scores) {
  constexpr int kApart = Block::kApart;
  const float nothing = __int_as_float(kMinusInfinityBits);
#pragma unroll
  for (int i = 0; i < kStep / 8; ++i) {
    const int p = block.LanePosition(lane_begin, i);
    float4& score = scores[i];
    score = {Sees(p, positions[0], window) ? score.x : nothing,
             Sees(p + kApart, positions[0], window) ? score.y : nothing,
             Sees(p, positions[1], window) ? score.z : nothing,
             Sees(p + kApart, positions[1], window) ? score.w : nothing};
  }
}

// Scores become weights: `pairs` of [i] are those of scores[i], x and y, z and
// w. What was summed before is brought to the new maxima.
template <int kDims>
__device__ __forceinline__ void WeighStep(const StepScores& scores,
                                          StreamSums<kDims>* sums,
                                          uint32_t (&pairs)[kStep / 8][2]) {
  float maxima[2] = {sums->maxima[0], sums->maxima[1]};
#pragma unroll
  for (const float4& score : scores) {
    maxima[0] = fmaxf(maxima[0], fmaxf(score.x, score.y));
    maxima[1] = fmaxf(maxima[1], fmaxf(score.z, score.w));
  }
  float by[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float& maximum = maxima[half];
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 2));
    // A query that saw nothing yet has weights of zero, too.
    const bool none = maximum == __int_as_float(kMinusInfinityBits);
    const float shift = none ? 0.0f : maximum;
    by[half] = Exp2Below0(sums->maxima[half] - shift);
    sums->maxima[half] = maximum;
#pragma unroll
    for (int i = 0; i < kStep / 8; ++i) {
      const float4& score = scores[i];
      pairs[i][half] =
          RoundedPair(WeightExp2((half == 0 ? score.x : score.z) - shift),
                      WeightExp2((half == 0 ? score.y : score.w) - shift));
    }
  }
  // Times 1 is nothing.
  if (!__any_sync(kAllLanes, by[0] != 1.0f || by[1] != 1.0f)) return;
  const auto multiply = [&by](float4& sum) {
    sum = {sum.x * by[0], sum.y * by[0], sum.z * by[1], sum.w * by[1]};
  };
  multiply(sums->totals);
#pragma unroll
  for (float4& value : sums->values) multiply(value);
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_STREAM_WEIGHTS_CUH_
