// Attention over bf16 keys and values of more than 128 dimensions on the tensor
// cores (mma.m16n8k16): the kernel. (Of fewer: attention_stream.cuh.) A block
// of 4 warps takes tiles of 16 queries of one KV head, and the positions of one
// split. Warps share the positions when scores are computed, and the dimensions
// when values are added. So the sum over a split's positions is one chain.
// Between the two they exchange maxima, weights and totals.
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
template <int kTiles, int kParts>
__device__ __forceinline__ void WriteSums(const Bf16Block<kTiles>& block,
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
      const int first_split = SplitRule().First(position, args.window);
      if (position < 0 || position < split * kAttentionSplit) continue;
      if (split < first_split) continue;
      const int index = 16 * i + 8 * half + block.lane / 4;
      const size_t query =
          static_cast<size_t>(who.Row(index)) * args.num_heads +
          who.Head(index);
      const bool done = first_split == SplitRule().Of(position);
      const float total = sums.totals[i][half];
      float* to = args.out + query * head_dim;
      if (!done) {
        to = PartialOf(args, query, split);
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

// Positions of the queries whose sums this thread has; below 0: there is none.
template <int kTiles>
__device__ __forceinline__ void FindQueries(const AttentionArgs& args,
                                            const TileQueries& who,
                                            const Bf16Block<kTiles>& block,
                                            int (&positions)[kTiles][2]) {
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
  // Of values; set late, for the registers that they take.
  int steps = 0;    // of 16 positions
  int all_see = 0;  // of the positions: all queries see so many
};

// Scores of the split; fetches the keys of the next chunk.
template <int kTiles>
__device__ __forceinline__ void ScoreSplit(const Bf16Block<kTiles>& block,
                                           const SplitAt& split, int chunks,
                                           float4 (&scores)[kTiles][4]) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    WaitForChunk(chunk);
    if (block.warp * kWarpPositions < split.seen) {
      AddScores(block, chunk, scores);
    }
    __syncwarp();
    if (chunk + 1 < chunks) block.CopyKeys(split.begin, chunk + 1);
    CommitCopies();
  }
}

// A chunk's sums of values; fetches those of the next chunk.
template <int kTiles, int kParts>
__device__ __forceinline__ void SumChunk(const Bf16Block<kTiles>& block,
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
  if (chunk + 1 < chunks) block.CopyValues(split.begin, chunk + 1);
  CommitCopies();
  SumTotals(block, sums->totals);
}

// One block for each tile (x), KV head and part of its query heads (y) and
// split (z).
template <int kTiles>
__global__ void __launch_bounds__(kBf16Threads, kTiles == 1 ? 3 : 2)
    Bf16Kernel(const AttentionArgs args, int parts) {
  using Block = Bf16Block<kTiles>;
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const AttentionTile tile = args.tiles[blockIdx.x];
  const int head_dim = args.kv.head_dim;
  const TileQueries who(args, tile, static_cast<int>(blockIdx.y), parts,
                        Block::kQueries);
  const TileSpan span = FindSpan(args, tile);
  const int split = blockIdx.z;
  if (who.count <= 0 || split > SplitRule().Of(span.last)) return;
  if (split < SplitRule().First(span.first, args.window)) return;
  if (split < tile.first_split || split >= tile.end_split) return;
  const int chunks = (head_dim + Block::kDims - 1) / Block::kDims;
  const Block block(args.kv, RowPath(args.rows, tile.first_row), who, span.last,
                    shared);
  const int begin = split * kAttentionSplit;

  block.CopyKeys(begin, 0);
  CommitCopies();
  block.FindPlaces(begin);
  __syncthreads();
  block.CopyValues(begin, 0);
  CommitCopies();
  LoadQueries(args, who, block);
  int positions[kTiles][2];
  FindQueries(args, who, block, positions);
  __syncthreads();

  SplitAt at = {begin, min(kAttentionSplit, span.last - begin + 1)};
  float4 scores[kTiles][4] = {};
  ScoreSplit(block, at, chunks, scores);
  if (args.soft_cap > 0) CapScores<kTiles>(args.soft_cap, scores);
  ShareMaxima(block, positions,
              begin + block.warp * kWarpPositions + 8 * (block.lane % 4),
              args.window, scores);
  __syncthreads();
  RowSums<kTiles, Block::kParts> sums;
  ShareWeights(block, scores, sums.maxima);
  __syncthreads();
  at.steps = (at.seen + 31) / 32 * 2;
  at.all_see = span.last - args.window >= begin
                   ? 0  // the last query's window begins past the first
                   : max(span.first - begin + 1, 0);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    SumChunk(block, args, who, at, chunk, chunks, &sums);
    WriteSums(block, args, who, positions, split, chunk, sums);
  }
  WaitCopies<0>();
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BF16_CUH_
