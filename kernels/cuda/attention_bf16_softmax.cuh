// Attention over bf16 keys and values of more than 128 dimensions: queries,
// their scores on the tensor cores, and the weights that scores become.

#ifndef KERNELS_CUDA_ATTENTION_BF16_SOFTMAX_CUH_
#define KERNELS_CUDA_ATTENTION_BF16_SOFTMAX_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_bf16_block.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu includes this

// Queries times scale, rounded; in powers of 2, which are cheaper than of e.
template <int kTiles>
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args,
                                            const TileQueries& who,
                                            const Bf16Block<kTiles>& block) {
  const int head_dim = args.kv.head_dim;
  const float factor = args.scale * 1.44269504088896341f;
#pragma unroll 1
  for (int i = 0; i < kTiles; ++i) {
    const float* query[2] = {};
    for (int half = 0; half < 2; ++half) {
      const int index = 16 * i + 8 * half + block.lane / 4;
      if (index >= who.count) continue;
      query[half] = args.q +
                    static_cast<size_t>(who.Row(index)) * args.q_stride +
                    static_cast<size_t>(who.Head(index)) * head_dim;
    }
    const auto pair = [&](const float* from, int d) {
      if (from == nullptr || d >= head_dim) return 0u;
      return RoundedPair(from[d] * factor, from[d + 1] * factor);
    };
#pragma unroll 2
    for (int d = 16 * block.warp; d < head_dim; d += 16 * kBf16Warps) {
      const int first = d + 2 * (block.lane % 4);
      block.queries[(d / 16 * kTiles + i) * 32 + block.lane] =
          make_uint4(pair(query[0], first), pair(query[1], first),
                     pair(query[0], first + 8), pair(query[1], first + 8));
    }
  }
}

// Adds a chunk of dimensions to the scores of the warp's positions. x and y of
// scores[i][j] are positions 8t + j and 8t + 4 + j for query g of tile i, with
// t = lane % 4. z and w are those for query g + 8.
template <int kTiles>
__device__ __forceinline__ void AddScores(const Bf16Block<kTiles>& block,
                                          int chunk,
                                          float4 (&scores)[kTiles][4]) {
  const int t = block.lane % 4;
  const uint4* const keys = block.keys + t * 8 + (block.lane / 4 ^ 2 * t);
  const uint4* const queries =
      block.queries + chunk * (block.kDims / 16) * kTiles * 32 + block.lane;
  const int steps =
      (min(block.kDims, block.kv.head_dim - chunk * block.kDims) + 15) / 16;
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    const uint4 low = keys[step * 64];
    const uint4 high = keys[step * 64 + 32];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (16 * i >= block.count) break;
      const uint4 a = queries[(step * kTiles + i) * 32];
      MultiplyAdd(scores[i][0], a.x, a.y, a.z, a.w, low.x, high.x);
      MultiplyAdd(scores[i][1], a.x, a.y, a.z, a.w, low.y, high.y);
      MultiplyAdd(scores[i][2], a.x, a.y, a.z, a.w, low.z, high.z);
      MultiplyAdd(scores[i][3], a.x, a.y, a.z, a.w, low.w, high.w);
    }
  }
}

// Caps scores, which are to base 2.
template <int kTiles>
__device__ __forceinline__ void CapScores(float soft_cap,
                                          float4 (&scores)[kTiles][4]) {
  const float cap = soft_cap * 1.44269504088896341f;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float4& score = scores[i][j];
      score = {Capped(score.x, cap), Capped(score.y, cap), Capped(score.z, cap),
               Capped(score.w, cap)};
    }
  }
}

// Masks scores and tells the other warps the warp's largest. `limit`: last
// position that the query sees, counted from the lane's first.
template <int kTiles>
__device__ __forceinline__ void ShareMaxima(const Bf16Block<kTiles>& block,
                                            const int (&limits)[kTiles][2],
                                            int lane_begin, int window,
                                            float4 (&scores)[kTiles][4]) {
  const float nothing = __int_as_float(kMinusInfinityBits);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    float maxima[2] = {nothing, nothing};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float4& score = scores[i][j];
      const int low = limits[i][0] - lane_begin;
      const int high = limits[i][1] - lane_begin;
      score = {Sees(j, low, window) ? score.x : nothing,
               Sees(j + 4, low, window) ? score.y : nothing,
               Sees(j, high, window) ? score.z : nothing,
               Sees(j + 4, high, window) ? score.w : nothing};
      maxima[0] = fmaxf(maxima[0], fmaxf(score.x, score.y));
      maxima[1] = fmaxf(maxima[1], fmaxf(score.z, score.w));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float maximum = maxima[half];
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 1));
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, 2));
      if (block.lane % 4 == 0) {
        block.maxima[block.warp * block.kQueries + 16 * i + 8 * half +
                     block.lane / 4] = maximum;
      }
    }
  }
}

// Of all warps, in their order.
template <int kTiles, typename Add>
__device__ __forceinline__ float OverWarps(const Bf16Block<kTiles>& block,
                                           const float* from, int i, int half,
                                           const Add& add) {
  const float* const at = from + 16 * i + 8 * half + block.lane / 4;
  float result = at[0];
#pragma unroll
  for (int warp = 1; warp < kBf16Warps; ++warp) {
    result = add(result, at[warp * block.kQueries]);
  }
  return result;
}

// Exponentials, rounded, for all warps, and what the warp's add up to.
template <int kTiles>
__device__ __forceinline__ void ShareWeights(const Bf16Block<kTiles>& block,
                                             const float4 (&scores)[kTiles][4],
                                             float (&maxima)[kTiles][2]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    uint32_t pairs[4][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float maximum =
          OverWarps(block, block.maxima, i, half,
                    [](float a, float b) { return fmaxf(a, b); });
      maxima[i][half] = maximum;
      // A query that sees nothing here has weights of zero, too.
      const bool none = maximum == __int_as_float(kMinusInfinityBits);
      const float shift = none ? 0.0f : maximum;
      float total = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4& score = scores[i][j];
        const uint32_t pair =
            RoundedPair(Exp2Below0((half == 0 ? score.x : score.z) - shift),
                        Exp2Below0((half == 0 ? score.y : score.w) - shift));
        pairs[j][half] = pair;
        total = (total + LowBF16(pair)) + HighBF16(pair);
      }
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      if (block.lane % 4 == 0) {
        block.totals[block.warp * block.kQueries + 16 * i + 8 * half +
                     block.lane / 4] = total;
      }
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      block.weights[((2 * block.warp + step) * kTiles + i) * 32 + block.lane] =
          make_uint4(pairs[2 * step][0], pairs[2 * step][1],
                     pairs[2 * step + 1][0], pairs[2 * step + 1][1]);
    }
  }
}

// All warps' totals of the queries' weights.
template <int kTiles>
__device__ __forceinline__ void SumTotals(const Bf16Block<kTiles>& block,
                                          float (&totals)[kTiles][2]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      totals[i][half] = OverWarps(block, block.totals, i, half,
                                  [](float a, float b) { return a + b; });
    }
  }
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BF16_SOFTMAX_CUH_
