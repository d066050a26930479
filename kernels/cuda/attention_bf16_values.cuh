// Attention over bf16 keys and values of more than 128 dimensions: sums of
// weighted values on the tensor cores.

#ifndef KERNELS_CUDA_ATTENTION_BF16_VALUES_CUH_
#define KERNELS_CUDA_ATTENTION_BF16_VALUES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_bf16_block.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu includes this

// Sums of a warp's dimensions for its queries. x and y of [i][j] are dimensions
// 2t kParts + j and (2t + 1) kParts + j of query g of tile i. z and w are those
// of query g + 8.
template <int kTiles, int kParts>
using ValueSums = float4[kTiles][kParts];

template <int kTiles, int kParts>
__device__ __forceinline__ void AddValues(const Bf16Block<kTiles>& block,
                                          int steps,
                                          ValueSums<kTiles, kParts>& sums) {
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    uint32_t b[kParts][2];
    block.template LoadValues<false>(step, 0, 0, b);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (16 * i >= block.count) break;
      const uint4 a = block.weights[(step * kTiles + i) * 32 + block.lane];
#pragma unroll
      for (int j = 0; j < kParts; ++j) {
        MultiplyAdd(sums[i][j], a.x, a.y, a.z, a.w, b[j][0], b[j][1]);
      }
    }
  }
}

// As AddValues where a value is infinite or NaN that not all rows see: zero
// times that is not zero. So each row has a turn in which what it does not see
// is zero.
template <int kTiles, int kParts>
__device__ __forceinline__ void AddValuesByRow(
    const Bf16Block<kTiles>& block, const AttentionArgs& args,
    const TileQueries& who, int begin, int steps,
    ValueSums<kTiles, kParts>& sums) {
  const int end = who.Row(who.count - 1);
#pragma unroll 1
  for (int row = who.Row(0); row <= end; ++row) {
    const int limit = args.rows.positions[row] - begin;
    // Which of the row's queries the lane's first is.
    const int own =
        block.lane / 4 + who.first - (row - who.first_row) * who.group;
#pragma unroll
    for (int j = 0; j < kParts; ++j) {  // one at a time: few registers
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        uint32_t b[kParts][2];
        block.template LoadValues<true>(step, limit, args.window, b);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const uint4 a = block.weights[(step * kTiles + i) * 32 + block.lane];
          const bool low = own + 16 * i >= 0 && own + 16 * i < who.group;
          const bool high =
              own + 16 * i + 8 >= 0 && own + 16 * i + 8 < who.group;
          float4& sum = sums[i][j];
          float4 next = sum;
          MultiplyAdd(next, a.x, a.y, a.z, a.w, b[j][0], b[j][1]);
          sum = {low ? next.x : sum.x, low ? next.y : sum.y,
                 high ? next.z : sum.z, high ? next.w : sum.w};
        }
      }
    }
  }
}

// A row's sums over a split: maximum, total and values.
template <int kTiles, int kParts>
struct RowSums {
  float maxima[kTiles][2];
  float totals[kTiles][2];
  ValueSums<kTiles, kParts> values;
};

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BF16_VALUES_CUH_
