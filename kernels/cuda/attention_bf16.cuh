// Attention over bf16 keys and values on the tensor cores (mma.m16n8k16): the
// kernel. A block of 4 warps takes tiles of 16 queries of one KV head, and the
// positions of one split, or of all splits in turn. Warps share the positions
// when scores are computed and the dimensions when values are added, so that
// the sum over a split's positions is one chain. Between the two they exchange
// maxima, weights and totals: two barriers a split. The next split's keys
// arrive while values are added, its values while scores are computed.
//
// The order of every sum follows from head_dim and the position alone:
//   scores     steps of 16 dimensions
//   totals     a lane's 8 positions, 4 lanes as a tree, the warps in turn
//   values     steps of 16 positions, each in the order of the instruction
//   splits     from the first to the last
// How many queries a block has, where they stand in it and how splits are
// shared among blocks moves none of it. Positions that a query may not see have
// a weight of zero: times a finite value that moves no sum. (On a GPU up to
// what cuda_attention_test.cc finds: no model has values of 2^60.)

#ifndef KERNELS_CUDA_ATTENTION_BF16_CUH_
#define KERNELS_CUDA_ATTENTION_BF16_CUH_

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_bf16_block.cuh"
#include "kernels/cuda/attention_bf16_softmax.cuh"
#include "kernels/cuda/attention_bf16_values.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu includes this

// Writes a chunk of dimensions: of rows that are done their means, of others
// the split's sums for MergeKernel.
template <bool kWhole, int kTiles, int kDims, int kParts>
__device__ __forceinline__ void WriteSums(const Bf16Block<kTiles, kDims>& block,
                                          const AttentionArgs& args,
                                          const TileQueries& who,
                                          const int (&positions)[kTiles][2],
                                          int split, int chunk,
                                          const RowSums<kTiles, kParts>& sums) {
  const int head_dim = args.kv.head_dim;
  const int first = block.FirstDim(chunk) + 2 * kParts * (block.lane % 4);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = positions[i][half];
      const int first_split = FirstSplit(position, args.window);
      if (position < 0 || position < split * kAttentionSplit) continue;
      if (!kWhole && split < first_split) continue;
      const int index = 16 * i + 8 * half + block.lane / 4;
      const size_t query =
          static_cast<size_t>(who.Row(index)) * args.num_heads +
          who.Head(index);
      const bool done = kWhole || first_split == position / kAttentionSplit;
      const float total = sums.totals[i][half];
      float* to = args.out + query * head_dim;
      if (!done) {
        // Partial results start at args.first_row.
        const size_t slot =
            (query - static_cast<size_t>(args.first_row) * args.num_heads) *
                args.max_splits +
            split;
        to = args.partials + slot * (head_dim + 2);
        if (chunk == 0 && block.warp == 0 && block.lane % 4 == 0) {
          to[0] = sums.maxima[i][half];
          to[1] = total;
        }
        to += 2;
      }
#pragma unroll
      for (int j = 0; j < kParts; j += 2) {
        const float4& a = sums.values[i][j];
        const float4& b = sums.values[i][j + 1];
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          const int d = first + kParts * column + j;
          if (d >= head_dim) continue;  // even, as head_dim is
          float2 pair = half == 0 ? make_float2(column == 0 ? a.x : a.y,
                                                column == 0 ? b.x : b.y)
                                  : make_float2(column == 0 ? a.z : a.w,
                                                column == 0 ? b.z : b.w);
          if (done) {
            pair = {WeightedMean(pair.x, total), WeightedMean(pair.y, total)};
          }
          *reinterpret_cast<float2*>(to + d) = pair;
        }
      }
    }
  }
}

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

// Positions of the queries whose sums this thread has; below 0: there is none.
template <int kTiles, int kDims>
__device__ __forceinline__ void FindQueries(
    const AttentionArgs& args, const TileQueries& who,
    const Bf16Block<kTiles, kDims>& block, int (&positions)[kTiles][2]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = 16 * i + 8 * half + block.lane / 4;
      positions[i][half] =
          index < who.count ? args.rows.positions[who.Row(index)] : -1;
    }
  }
}

// Of a chunk's copies; those of what comes next may be under way.
__device__ __forceinline__ void WaitForChunk(int chunk) {
  if (chunk == 0) {
    WaitCopies<1>();
  } else {
    WaitCopies<0>();
  }
  __syncwarp();
}

// The split that a block is at: `seen` positions from `begin` on.
struct SplitAt {
  int begin;
  int seen;
  bool has_next;  // the block has one behind it
  // Of values; set late, for the registers that they take.
  int steps = 0;    // of 16 positions
  int all_see = 0;  // of the positions: all queries see so many
};

// Scores of the split; fetches the keys of the next chunk or split.
template <int kTiles, int kDims>
__device__ __forceinline__ void ScoreSplit(
    const Bf16Block<kTiles, kDims>& block, const SplitAt& split, int chunks,
    float4 (&scores)[kTiles][4]) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    WaitForChunk(chunk);
    if (block.warp * kWarpPositions < split.seen) {
      AddScores(block, chunk, scores);
    }
    __syncwarp();
    if (chunk + 1 < chunks) {
      block.CopyKeys(split.begin, chunk + 1);
    } else if (split.has_next) {
      block.CopyKeys(split.begin + kAttentionSplit, 0);
    }
    CommitCopies();
  }
}

// A chunk's sums of values; fetches those of the next chunk or split.
template <int kTiles, int kDims, int kParts>
__device__ __forceinline__ void SumChunk(const Bf16Block<kTiles, kDims>& block,
                                         const AttentionArgs& args,
                                         const TileQueries& who,
                                         const SplitAt& split, int chunk,
                                         int chunks,
                                         RowSums<kTiles, kParts>* sums) {
  WaitForChunk(chunk);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kParts; ++j) sums->values[i][j] = {};
  }
  if (block.FirstDim(chunk) < args.kv.head_dim) {
    if (split.all_see < split.seen &&
        block.AnyNotFinite(split.all_see, split.seen)) {
      AddValuesByRow(block, args, who, split.begin, split.steps, sums->values);
    } else {
      AddValues(block, split.steps, sums->values);
    }
  }
  __syncwarp();
  if (chunk + 1 < chunks) {
    block.CopyValues(split.begin, chunk + 1);
  } else if (split.has_next) {
    block.CopyValues(split.begin + kAttentionSplit, 0);
  }
  CommitCopies();
  SumTotals(block, sums->totals);
}

// One block for each tile (x) and KV head and part of its query heads (y);
// kWhole: for all splits, the latest tiles first, else for one (z).
template <bool kWhole, int kTiles, int kDims>
__global__ void __launch_bounds__(kBf16Threads, kTiles == 1 ? 3 : 2)
    Bf16Kernel(const AttentionArgs args, int parts) {
  using Block = Bf16Block<kTiles, kDims>;
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const AttentionTile tile =
      args.tiles[kWhole ? gridDim.x - 1 - blockIdx.x : blockIdx.x];
  const int head_dim = args.kv.head_dim;
  const TileQueries who(args, tile, static_cast<int>(blockIdx.y), parts,
                        Block::kQueries);
  const TileSpan span = FindSpan(args, tile);
  const int seen_split = FirstSplit(span.first, args.window);
  const int first_split = kWhole ? seen_split : static_cast<int>(blockIdx.z);
  const int tile_split = span.last / kAttentionSplit;
  if (who.count <= 0 || first_split > tile_split) return;
  if (first_split < seen_split) return;
  if (first_split < tile.first_split || first_split >= tile.end_split) return;
  const int last_split = kWhole ? tile_split : first_split;
  const int chunks = kWhole || kDims < 128 ? 1 : (head_dim + kDims - 1) / kDims;
  const Block block(args.kv, RowPath(args.rows, tile.first_row), who, span.last,
                    shared);

  block.CopyKeys(first_split * kAttentionSplit, 0);
  CommitCopies();
  block.FindPlaces(first_split * kAttentionSplit);
  __syncthreads();
  block.CopyValues(first_split * kAttentionSplit, 0);
  CommitCopies();
  LoadQueries(args, who, block);
  int positions[kTiles][2];
  FindQueries(args, who, block, positions);
  __syncthreads();

  RowSums<kTiles, Block::kParts> rows;  // where kWhole: of all splits so far
  for (int split = first_split; split <= last_split; ++split) {
    const int begin = split * kAttentionSplit;
    const int seen = min(kAttentionSplit, span.last - begin + 1);
    SplitAt at = {begin, seen, split < last_split};
    float4 scores[kTiles][4] = {};
    ScoreSplit(block, at, chunks, scores);
    if (args.soft_cap > 0) CapScores<kTiles>(args.soft_cap, scores);
    ShareMaxima(block, positions,
                begin + block.warp * kWarpPositions + 8 * (block.lane % 4),
                args.window, scores);
    __syncthreads();
    if (split < last_split) block.FindPlaces(begin + kAttentionSplit);
    RowSums<kTiles, Block::kParts> sums;
    ShareWeights(block, scores, sums.maxima);
    __syncthreads();
    at.steps = (seen + 31) / 32 * 2;
    at.all_see = span.last - args.window >= begin
                     ? 0  // the last query's window begins behind the first
                     : max(span.first - begin + 1, 0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      SumChunk(block, args, who, at, chunk, chunks, &sums);
      if (!kWhole)
        WriteSums<false>(block, args, who, positions, split, chunk, sums);
    }
    if (kWhole && split == first_split) {
      rows = sums;
    } else if (kWhole) {
      AddSplit(sums, positions, args.window, begin, &rows);
    }
  }
  WaitCopies<0>();
  if (kWhole) WriteSums<true>(block, args, who, positions, 0, 0, rows);
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BF16_CUH_
