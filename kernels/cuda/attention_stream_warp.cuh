// Attention over bf16 keys and values of up to 128 dimensions: what a warp does
// with a step of 64 positions for its 16 queries. Lane 4g + t has queries g and
// g + 8: "half" 0 and 1.

#ifndef KERNELS_CUDA_ATTENTION_STREAM_WARP_CUH_
#define KERNELS_CUDA_ATTENTION_STREAM_WARP_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_stream_block.cuh"
#include "kernels/cuda/attention_stream_weights.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu and persistent.cu include this

// A warp's queries: 16, or fewer, of one tile.
template <int kDims>
struct StreamQueries {
  int positions[2];  // below 0: there is none
  int indices[2];    // counted over the heads of all rows
  int first = 0;     // position of any, and the last
  int last = -1;

  // Some do not see the first positions of a step, or its last.
  __device__ bool IsLate(int begin, int window) const {
    return last - window >= begin;
  }
  __device__ bool IsEarly(int begin) const { return first < begin + kStep - 1; }

  // Also has the block keep them, times scale, to base 2, rounded.
  template <typename Block>
  __device__ StreamQueries(const AttentionArgs& args, const TileQueries& who,
                           const Block& block) {
    const float* query[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = 16 * block.warp + 8 * half + block.lane / 4;
      // What is there is read by all, without a branch.
      const int at = min(index, who.count - 1);
      const int row = who.Row(at);
      const int head = who.Head(at);
      positions[half] = index < who.count ? args.rows.positions[row] : -1;
      indices[half] = row * args.num_heads + head;
      query[half] = args.q + static_cast<size_t>(row) * args.q_stride +
                    static_cast<size_t>(head) * args.kv.head_dim;
    }
    last = __reduce_max_sync(kAllLanes, max(positions[0], positions[1]));
    first = __reduce_min_sync(kAllLanes,
                              min(positions[0] < 0 ? last : positions[0],
                                  positions[1] < 0 ? last : positions[1]));
    const int head_dim = args.kv.head_dim;
    const float factor = args.scale * 1.44269504088896341f;
    const auto pair = [&](int half, int d) {
      // One by one: rows may be any number of floats apart.
      const float* const two = query[half] + min(d, head_dim - 2);
      const uint32_t rounded = RoundedPair(two[0] * factor, two[1] * factor);
      return positions[half] >= 0 && d < head_dim ? rounded : 0u;
    };
#pragma unroll
    for (int step = 0; step < kDims / 16; ++step) {
      const int d = 16 * step + 2 * (block.lane % 4);
      block.KeepQueries(step, make_uint4(pair(0, d), pair(1, d), pair(0, d + 8),
                                         pair(1, d + 8)));
    }
  }
};

template <int kWarps, int kDims>
__device__ __forceinline__ void ScoreStep(
    const StreamBlock<kWarps, kDims>& block, int stage, StepScores& scores) {
#pragma unroll
  for (float4& score : scores) score = {};
  const uint4* const keys = block.KeysOf(stage);
  const int t = block.lane % 4;
  const int steps = (block.kv.head_dim + 15) / 16;
#pragma unroll 4
  for (int step = 0; step < steps; ++step) {
    const uint4 a = block.queries[step * 32];
#pragma unroll
    for (int w = 0; w < kStep / 32; ++w) {
      const int vector = 8 * w + block.lane / 4;
      const uint4 low = keys[block.KeyAt(8 * step + t, vector)];
      const uint4 high = keys[block.KeyAt(8 * step + 4 + t, vector)];
      float4* const to = scores + 4 * w;
      MultiplyAdd(to[0], a.x, a.y, a.z, a.w, low.x, high.x);
      MultiplyAdd(to[1], a.x, a.y, a.z, a.w, low.y, high.y);
      MultiplyAdd(to[2], a.x, a.y, a.z, a.w, low.z, high.z);
      MultiplyAdd(to[3], a.x, a.y, a.z, a.w, low.w, high.w);
    }
  }
}

constexpr uint32_t kOnePair = 0x3f803f80;

template <int kDims>
__device__ __forceinline__ void AddTotals(const uint32_t (&pairs)[kStep / 8][2],
                                          StreamSums<kDims>* sums) {
#pragma unroll
  for (int group = 0; group < kStep / 16; ++group) {
    const auto& low = pairs[2 * group];
    const auto& high = pairs[2 * group + 1];
    MultiplyAdd(sums->totals, low[0], low[1], high[0], high[1], kOnePair,
                kOnePair);
  }
}

// Adds weights, and values times weights, 16 positions at a time.
template <typename Block, int kDims>
__device__ __forceinline__ void AddStep(const Block& block, int stage,
                                        const uint32_t (&pairs)[kStep / 8][2],
                                        StreamSums<kDims>* sums) {
#pragma unroll
  for (int group = 0; group < kStep / 16; ++group) {
    const auto& low = pairs[2 * group];
    const auto& high = pairs[2 * group + 1];
    MultiplyAdd(sums->totals, low[0], low[1], high[0], high[1], kOnePair,
                kOnePair);
#pragma unroll
    for (int j = 0; j < kDims / 16; ++j) {
      uint32_t b[4];
      block.LoadValues(stage, group, j, b);
      MultiplyAdd(sums->values[2 * j], low[0], low[1], high[0], high[1], b[0],
                  b[1]);
      MultiplyAdd(sums->values[2 * j + 1], low[0], low[1], high[0], high[1],
                  b[2], b[3]);
    }
  }
}

// Of a lane's pair of positions p and p + kApart, what a row sees.
template <int kApart>
__device__ __forceinline__ uint32_t SeenHalves(int p, int limit, int window) {
  return (Sees(p, limit, window) ? 0x0000ffffu : 0u) |
         (Sees(p + kApart, limit, window) ? 0xffff0000u : 0u);
}

// Whether a value is infinite or NaN that some queries do not see.
template <typename Block, int kDims>
__device__ __forceinline__ bool HidesNotFinite(
    const Block& block, int stage, const StreamQueries<kDims>& queries,
    int begin, bool late) {
  const int all_see = late ? 0 : max(queries.first - begin + 1, 0);
  const int seen = min(kStep, block.last - begin + 1);
  return all_see < seen && block.AnyNotFinite(stage, all_see, seen);
}

// As AddStep where a value is infinite or NaN that not all rows see: zero times
// that is not zero. So each row has a turn in which what it does not see is
// zero. A turn for each few dimensions: so fewer registers are wanted at once.
template <typename Block, int kDims>
__device__ __forceinline__ void AddStepByRow(
    const Block& block, int stage, const uint32_t (&pairs)[kStep / 8][2],
    const AttentionArgs& args, const StreamQueries<kDims>& queries,
    int lane_begin, StreamSums<kDims>* sums) {
  const int rows[2] = {queries.indices[0] / args.num_heads,
                       queries.indices[1] / args.num_heads};
  const int first = __reduce_min_sync(kAllLanes, rows[0]);
  const int last = __reduce_max_sync(kAllLanes, rows[1]);
#pragma unroll
  for (int j = 0; j < kDims / 16; ++j) {
#pragma unroll 1
    for (int row = first; row <= last; ++row) {
      const int limit = args.rows.positions[row];
      const auto add = [&](float4& sum, const uint32_t(&low)[2],
                           const uint32_t(&high)[2], uint32_t b0, uint32_t b1) {
        float4 next = sum;
        MultiplyAdd(next, low[0], low[1], high[0], high[1], b0, b1);
        sum = {rows[0] == row ? next.x : sum.x, rows[0] == row ? next.y : sum.y,
               rows[1] == row ? next.z : sum.z,
               rows[1] == row ? next.w : sum.w};
      };
#pragma unroll
      for (int group = 0; group < kStep / 16; ++group) {
        const int p = block.LanePosition(lane_begin, 2 * group);
        const uint32_t seen[2] = {
            SeenHalves<Block::kApart>(p, limit, args.window),
            SeenHalves<Block::kApart>(p + Block::kTileApart, limit,
                                      args.window)};
        const auto& low = pairs[2 * group];
        const auto& high = pairs[2 * group + 1];
        if (j == 0) add(sums->totals, low, high, kOnePair, kOnePair);
        uint32_t b[4];
        block.LoadValues(stage, group, j, b);
        add(sums->values[2 * j], low, high, b[0] & seen[0], b[1] & seen[1]);
        add(sums->values[2 * j + 1], low, high, b[2] & seen[0], b[3] & seen[1]);
      }
    }
  }
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_STREAM_WARP_CUH_
