// What the kernels of attention have in common: whose queries a block has, and
// how splits become one.

#ifndef KERNELS_CUDA_ATTENTION_TILE_CUH_
#define KERNELS_CUDA_ATTENTION_TILE_CUH_

#include <cuda_runtime.h>

#include <climits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/soft_cap.cuh"

namespace nacre::kernels::cuda {

inline constexpr int kMinusInfinityBits = static_cast<int>(0xff800000u);

// The queries of one block: part `part` of a tile's for one KV head.
struct TileQueries {
  int first_row;
  int first;  // counted over the rows' query heads of one KV head
  int count;  // at most 0: the part is empty
  int group;  // query heads of a KV head
  int kv_head;

  __device__ TileQueries(const AttentionArgs& args, const AttentionTile& tile,
                         int block, int parts, int most)
      : first_row(tile.first_row),
        first(block % parts * most),
        group(args.num_heads / args.kv.num_kv_heads),
        kv_head(block / parts) {
    count = min(most, tile.rows * group - first);
  }
  __device__ int Row(int i) const { return first_row + (first + i) / group; }
  __device__ int Head(int i) const {
    return kv_head * group + (first + i) % group;
  }
};

// The first and the last position of a tile's rows.
struct TileSpan {
  int first = INT_MAX;
  int last = -1;
};

__device__ __forceinline__ TileSpan FindSpan(const AttentionArgs& args,
                                             const AttentionTile& tile) {
  TileSpan span;
  for (int row = static_cast<int>(threadIdx.x) % 32; row < tile.rows;
       row += 32) {
    const int position = args.rows.positions[tile.first_row + row];
    span.first = min(span.first, position);
    span.last = max(span.last, position);
  }
  span.first = __reduce_min_sync(kAllLanes, span.first);
  span.last = __reduce_max_sync(kAllLanes, span.last);
  return span;
}

// Where the split's part of a query's result is kept: the largest score, the
// sum of the weights and of the weighted values. `query`: counted over the
// heads of all rows; those of args.first_row come first.
__device__ __forceinline__ float* PartialOf(const AttentionArgs& args,
                                            size_t query, int split) {
  const size_t slot =
      (query - static_cast<size_t>(args.first_row) * args.num_heads) *
          args.max_splits +
      split;
  return args.partials + slot * (args.kv.head_dim + 2);
}

// Whether a query sees position `p`, if its own is `limit` and it has a window;
// both counted from one position.
__device__ __forceinline__ bool Sees(int p, int limit, int window) {
  return p <= limit && limit - p < window;
}

// Whether one of eight bf16 values is infinite or NaN.
__device__ __forceinline__ bool HasNotFinite(const uint4& values) {
  bool found = false;
  for (const uint32_t word : {values.x, values.y, values.z, values.w}) {
    found = found || (word & 0x7f80u) == 0x7f80u ||
            (word & 0x7f800000u) == 0x7f800000u;
  }
  return found;
}

// What sums after two maxima are multiplied by before they are added.
struct MergeWeights {
  float maximum;
  float old_weight;
  float new_weight;
};

// Base 2 or e. e^0 is 1 exactly: there is one exponential.
template <bool kBase2>
__device__ __forceinline__ MergeWeights WeightsOf(float maximum, float next) {
  const float apart = maximum - next;
  const float less = kBase2 ? Exp2Below0(-fabsf(apart)) : Exp(-fabsf(apart));
  return {fmaxf(maximum, next), apart >= 0 ? 1.0f : less,
          apart > 0 ? less : 1.0f};
}

// The end of every row. What is masked adds zeros, whose sign may be that of a
// zero sum: a result of zero is always the positive one.
__device__ __forceinline__ float WeightedMean(float sum, float total) {
  return sum / total + 0.0f;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_TILE_CUH_
