// Attention over bf16 keys and values of up to 128 dimensions on the tensor
// cores (mma.m16n8k16): the kernel. A block takes the queries of a tile for one
// KV head, 16 a warp. It takes the positions of one split, or of all splits in
// turn. A warp has all positions and all dimensions of its queries; warps share
// what is read.
//
// The order of every sum follows from head_dim and the position alone:
//   scores     steps of 16 dimensions
//   weights    to the largest score of the split up to the end of the step of
//              64 positions; sums before it are brought to that
//   values     groups of 16 positions, each in the order of the instruction;
//   totals     likewise, of values that are 1
//   splits     from the first to the last
// How many queries a block has, where they stand in it and how splits are
// shared among blocks moves none of it. Positions that a query may not see have
// a weight of zero: times a finite value that moves no sum. (On a GPU up to
// what cuda_attention_test.cc finds: no model has values of 2^60.)

#ifndef KERNELS_CUDA_ATTENTION_STREAM_CUH_
#define KERNELS_CUDA_ATTENTION_STREAM_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_stream_block.cuh"
#include "kernels/cuda/attention_stream_warp.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu and persistent.cu include this

// Of rows that are done their means, of others the split's sums for
// MergeKernel.
template <bool kWhole, int kDims>
__device__ __forceinline__ void WriteStream(const AttentionArgs& args,
                                            const StreamQueries<kDims>& queries,
                                            int lane, int split,
                                            const StreamSums<kDims>& sums) {
  const SplitRule rule = args.rule();
  const int head_dim = args.kv.head_dim;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = queries.positions[half];
    if (position < 0) continue;
    const int first_split = rule.First(position, args.window);
    const int last_split = rule.Of(position);
    if (!kWhole && (split < first_split || split > last_split)) continue;
    const auto query = static_cast<size_t>(queries.indices[half]);
    const bool done = kWhole || first_split == last_split;
    const float total = half == 0 ? sums.totals.x : sums.totals.z;
    float* to = args.out + query * head_dim;
    if (!done) {
      to = PartialOf(args, query, split);
      if (lane % 4 == 0) {
        *reinterpret_cast<float2*>(to) = make_float2(sums.maxima[half], total);
      }
      to += 2;
    }
#pragma unroll
    for (int j = 0; j < kDims / 8; ++j) {
      const int d = 8 * j + 2 * (lane % 4);
      if (d >= head_dim) break;  // even, as head_dim is
      const float4& value = sums.values[j];
      float2 pair = half == 0 ? make_float2(value.x, value.y)
                              : make_float2(value.z, value.w);
      if (done) {
        pair = {WeightedMean(pair.x, total), WeightedMean(pair.y, total)};
      }
      *reinterpret_cast<float2*>(to + d) = pair;
    }
  }
}

// Adds a split to what the splits before it have, where a query sees it. Their
// maxima are `maxima`, kept(0) are their totals and kept(j + 1) their
// values[j].
template <int kDims, typename Kept>
__device__ __forceinline__ void KeepSplit(
    const AttentionArgs& args, const StreamQueries<kDims>& queries, int split,
    const StreamSums<kDims>& sums, float (&maxima)[2], const Kept& kept) {
  const SplitRule rule = args.rule();
  const int begin = rule.Begin(split);
  const int end = rule.Begin(split + 1);
  MergeWeights by[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = queries.positions[half];
    // The first position that it sees. Splits are not looked for: what that
    // takes of registers would be kept all the time.
    const int seen = max(position + 1 - args.window, 0);
    by[half] = WeightsOf<true>(maxima[half], sums.maxima[half]);
    if (begin <= seen) by[half] = {sums.maxima[half], 0.0f, 1.0f};
    if (end <= seen || begin > position) by[half] = {maxima[half], 1.0f, 0.0f};
    maxima[half] = by[half].maximum;
  }
  const auto add = [&](int i, const float4& from) {
    float4& to = kept(i);
    to = {to.x * by[0].old_weight + from.x * by[0].new_weight,
          to.y * by[0].old_weight + from.y * by[0].new_weight,
          to.z * by[1].old_weight + from.z * by[1].new_weight,
          to.w * by[1].old_weight + from.w * by[1].new_weight};
  };
  add(0, sums.totals);
#pragma unroll
  for (int j = 0; j < kDims / 8; ++j) add(j + 1, sums.values[j]);
}

// Of the two, that which has the step at `begin`: needs no register.
__device__ __forceinline__ int StageOf(int begin) { return begin / kStep % 2; }

// A warp's part of the step at `begin`.
template <int kWarps, int kDims>
__device__ __forceinline__ void TakeStep(
    const AttentionArgs& args, const StreamBlock<kWarps, kDims>& block,
    const StreamQueries<kDims>& queries, int begin, StreamSums<kDims>* sums) {
  const int stage = StageOf(begin);
  StepScores scores;
  ScoreStep(block, stage, scores);
  if (args.soft_cap > 0) CapStep(args.soft_cap, scores);
  const int lane_begin = block.LaneBegin(begin);
  const bool late = queries.IsLate(begin, args.window);
  const bool early = queries.IsEarly(begin);
  if (late || early) {
    MaskStep(block, queries.positions, lane_begin, args.window, scores);
  }
  uint32_t pairs[kStep / 8][2];
  WeighStep(scores, sums, pairs);
  if (late || early) {
    if (HidesNotFinite(block, stage, queries, begin, late)) {
      AddStepByRow(block, stage, pairs, args, queries, lane_begin, sums);
      return;
    }
  }
  AddStep(block, stage, pairs, sums);
}

// What a block has to do: positions [begin, end), from the beginning of a split
// on.
struct StreamRange {
  int split;
  int begin;
  int end;
};

// By a warp that copies: brings its part of each step there while the step
// before is used.
template <int kWarps, int kDims, typename Here>
__device__ __forceinline__ void CopySteps(
    const Here& here, const StreamBlock<kWarps, kDims>& block,
    const StreamRange& range) {
  int part = range.begin + block.Part();
  // Tables were there before the first kernel of the step.
  block.SharePlace(block.FindPlace(part, range.end));
  here.WarpWaitsForPrevious();
  for (int begin = range.begin; begin < range.end; begin += kStep) {
    block.CopyKeys(StageOf(begin), part);
    block.CopyValues(StageOf(begin), part);
    CommitCopies();
    part += kStep;
    const auto next = block.FindPlace(part, range.end);
    WaitCopies<0>();
    block.Meet();  // the step is there, the one before is done with
    block.SharePlace(next);
  }
}

// By the others: uses the steps.
template <bool kWhole, int kWarps, int kDims, typename Here>
__device__ __forceinline__ void TakeSteps(
    const Here& here, const AttentionArgs& args, const TileQueries& who,
    const StreamBlock<kWarps, kDims>& block, const StreamRange& range) {
  here.WarpWaitsForPrevious();
  const StreamQueries<kDims> queries(args, who, block);
  StreamSums<kDims> sums;  // of the split
  sums.Clear();
  float maxima[2];  // where kWhole: of all splits so far
  maxima[0] = maxima[1] = sums.maxima[0];
  if constexpr (kWhole) {
#pragma unroll
    for (int i = 0; i < block.kLaneSums; ++i) block.kept[i * 32] = {};
  }
  int split = range.split;
  int split_end = args.rule().Begin(split + 1);
  for (int begin = range.begin; begin < range.end; begin += kStep) {
    block.Meet();
    // Steps before the windows of all its queries, or past them, give
    // nothing.
    if (begin <= queries.last &&
        queries.first - (begin + kStep - 1) < args.window) {
      TakeStep(args, block, queries, begin, &sums);
    }
    if constexpr (kWhole) {
      if (begin + kStep < min(range.end, split_end)) continue;
      KeepSplit(args, queries, split, sums, maxima,
                [&](int i) -> float4& { return block.kept[i * 32]; });
      sums.Clear();
      ++split;
      split_end = args.rule().Begin(split + 1);
    }
  }
  if constexpr (kWhole) {
    sums.totals = block.kept[0];
#pragma unroll
    for (int j = 0; j < kDims / 8; ++j) {
      sums.values[j] = block.kept[(j + 1) * 32];
    }
  }
  WriteStream<kWhole>(args, queries, block.lane, range.split, sums);
}

// One block for each tile (x) and KV head and part of its query heads (y).
// kWhole: for all splits, the latest tiles first. Else for one split (z); the
// latest, which are the longest, come first.
template <typename Here, bool kWhole, int kWarps, int kDims>
__device__ __forceinline__ void AttendStreamed(const Here& here,
                                               const AttentionArgs& args,
                                               int parts) {
  using Block = StreamBlock<kWarps, kDims>;
  here.LaunchDependents();
  const SplitRule rule = args.rule();
  const dim3 index = here.index();
  const AttentionTile tile =
      args.tiles[kWhole ? here.grid().x - 1 - index.x : index.x];
  const TileQueries who(args, tile, static_cast<int>(index.y), parts,
                        Block::kQueries);
  const TileSpan span = FindSpan(args, tile);
  const int seen_split = rule.First(span.first, args.window);
  const int tile_split = rule.Of(span.last);
  const int split =
      kWhole ? seen_split : static_cast<int>(here.grid().z - 1 - index.z);
  if (who.count <= 0 || split < seen_split || split > tile_split ||
      split < tile.first_split || split >= tile.end_split) {
    return here.WarpWaitsForPrevious();
  }
  const Block block(args.kv, RowPath(args.rows, tile.first_row), who.kv_head,
                    span.last, here.shared);
  const int end = rule.Begin((kWhole ? tile_split : split) + 1);
  const StreamRange range = {split, rule.Begin(split), min(end, span.last + 1)};
  if (block.warp >= kWarps) {
    CopySteps(here, block, range);
  } else {
    TakeSteps<kWhole>(here, args, who, block, range);
  }
}

template <bool kWhole, int kWarps, int kDims>
__global__ void __launch_bounds__(StreamBlock<kWarps, kDims>::kThreads,
                                  kWhole        ? 1
                                  : kWarps == 4 ? 2
                                                : 3)
    StreamKernel(const AttentionArgs args, int parts) {
  extern __shared__ uint4 shared[];
  AttendStreamed<KernelBlock, kWhole, kWarps, kDims>({shared}, args, parts);
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_STREAM_CUH_
