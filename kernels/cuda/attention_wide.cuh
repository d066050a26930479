// StreamKernel<true> (attention_stream.cuh) for devices where a warpgroup
// multiplies as one (compute capability 9.0). It gives the same bits: scores,
// weights, values and splits are summed in the order that is written there, by
// its own code wherever no product is. Of a group of 16 positions the product
// sums all at once, so their order does not count.
//
// Two warpgroups have 64 queries each. A third copies steps, up to four ahead.
// Scores of the next step are multiplied behind values of this one, and the two
// warpgroups take turns at that: while one multiplies the other has scores to
// turn into weights.

#ifndef KERNELS_CUDA_ATTENTION_WIDE_CUH_
#define KERNELS_CUDA_ATTENTION_WIDE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_stream.cuh"
#include "kernels/cuda/attention_stream_warp.cuh"
#include "kernels/cuda/attention_stream_weights.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_wide_block.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/shared_barriers.cuh"
#include "kernels/cuda/wide_products.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention_wide.cu includes this

#if NACRE_WIDE_PRODUCTS

// By the warpgroup that copies: a step is announced when those that were asked
// for after it are kAhead.
template <int kDims>
__device__ __forceinline__ void CopyWideSteps(
    const WideStreamBlock<kDims>& block, const StreamRange& range) {
  using Block = WideStreamBlock<kDims>;
  constexpr int kStages = Block::kStages;
  int part = range.begin + block.Part();
  // Tables were there before the first kernel of the step.
  block.SharePlace(block.FindPlace(part, range.end));
  WaitForPrevious();
  const int steps = (range.end - range.begin + kStep - 1) / kStep;
#pragma unroll 1
  for (int step = 0; step < steps + Block::kAhead; ++step) {
    if (step < steps) {
      const int stage = step % kStages;
      if (step >= kStages) {
        WaitPhase(block.free + stage, (step / kStages + 1) % 2);
      }
      block.CopyKeys(stage, part);
      block.CopyValues(stage, part);
      part += kStep;
      block.SharePlace(block.FindPlace(part, range.end));
    }
    CommitCopies();
    const int there = step - Block::kAhead;
    if (there < 0) continue;
    WaitCopies<Block::kAhead>();
    ShowToProducts();
    __syncwarp();
    if (block.lane == 0) Arrive(block.full + there % kStages);
  }
  WaitCopies<0>();  // groups that have none
}

// A warpgroup's queries, sums and scores. A lane has those of its warp, as in
// StreamKernel.
template <int kDims>
class WideTaker {
 public:
  using Block = WideStreamBlock<kDims>;

  __device__ __forceinline__ WideTaker(const AttentionArgs& args,
                                       const TileQueries& who,
                                       const Block& block)
      : args_(args), block_(block), queries_(args, who, block) {
    // All of the warpgroup have the same steps.
    const TileSpan span = SpanOf(who);
    queries_.first = span.first;
    queries_.last = span.last;
    sums_.Clear();
    all_.Clear();
#pragma unroll
    for (int i = 0; i < Block::kKept; ++i) block.kept[i * 32] = {};
    ShowToProducts();
    GroupBarrier<32 * Block::kGroupWarps>(block.Group());
  }

  __device__ __forceinline__ void Run(const StreamRange& range) {
    constexpr SplitRule kRule = SplitRuleOf(DType::kBF16, kDims);
    Multiply(range, 0, /*values=*/false);
#pragma unroll 1
    for (int step = 0, begin = range.begin; begin < range.end; ++step) {
      const bool adds = AnySees(begin);
      const bool multiplies = adds && !Weigh(begin, step % Block::kStages);
      Multiply(range, step + 1, multiplies);
      __syncwarp();  // all lanes have read the step
      if (block_.lane == 0) Arrive(block_.free + step % Block::kStages);
      // Looked for each time: a number that is kept has no register.
      const int split = kRule.Of(begin);
      begin += kStep;
      if (begin < min(range.end, kRule.Begin(split + 1))) continue;
      KeepSplit(
          args_, queries_, split, sums_, all_.maxima, [&](int i) -> float4& {
            return i < Block::kKept ? block_.kept[i * 32] : all_.values[i - 1];
          });
      sums_.Clear();
    }
    all_.totals = block_.kept[0];
#pragma unroll
    for (int i = 1; i < Block::kKept; ++i) {
      all_.values[i - 1] = block_.kept[i * 32];
    }
    WriteStream<true>(args_, queries_, block_.lane, /*split=*/0, all_);
  }

 private:
  // Of the warpgroup's queries; of none {-1, -1}.
  __device__ __forceinline__ TileSpan SpanOf(const TileQueries& who) const {
    constexpr int kQueries = 16 * Block::kGroupWarps;
    TileSpan span;
    const int end = min(who.count, kQueries * (block_.Group() + 1));
    for (int i = kQueries * block_.Group() + block_.lane; i < end; i += 32) {
      const int position = args_.rows.positions[who.Row(i)];
      span.first = min(span.first, position);
      span.last = max(span.last, position);
    }
    span.last = __reduce_max_sync(kAllLanes, span.last);
    span.first = min(__reduce_min_sync(kAllLanes, span.first), span.last);
    return span;
  }

  // Steps before the windows of all its queries, or past them, give nothing.
  __device__ __forceinline__ bool AnySees(int begin) const {
    return begin <= queries_.last &&
           queries_.first - (begin + kStep - 1) < args_.window;
  }

  // The step's scores become weights; totals are added. True: values, too,
  // because there are some that not all rows see and that are not finite.
  __device__ __forceinline__ bool Weigh(int begin, int stage) {
    if (args_.soft_cap > 0) CapStep(args_.soft_cap, scores_);
    const int lane_begin = block_.LaneBegin(begin);
    const bool late = queries_.IsLate(begin, args_.window);
    const bool early = queries_.IsEarly(begin);
    if (late || early) {
      MaskStep(block_, queries_.positions, lane_begin, args_.window, scores_);
    }
    WeighStep(scores_, &sums_, pairs_);
    if ((late || early) &&
        HidesNotFinite(block_, stage, queries_, begin, late)) {
      AddStepByRow(block_, stage, pairs_, args_, queries_, lane_begin, &sums_);
      return true;
    }
    AddTotals(pairs_, &sums_);
    return false;
  }

  // In the warpgroup's turn: adds values of the step before `step` if `values`,
  // and has scores of `step`, if there is one that it sees.
  __device__ __forceinline__ void Multiply(const StreamRange& range, int step,
                                           bool values) {
    constexpr int kStages = Block::kStages;
    const int stage = step % kStages;
    const int begin = range.begin + step * kStep;
    const bool is_there = begin < range.end;
    if (is_there) WaitPhase(block_.full + stage, step / kStages % 2);
    const int group = block_.Group();
    WaitPhase(block_.turns + group, (step + 1 + group) % 2);
    const bool scores = is_there && AnySees(begin);
    if (values && scores) {
      MultiplyInTurn<true, true>(step);
    } else if (values) {
      MultiplyInTurn<true, false>(step);
    } else if (scores) {
      MultiplyInTurn<false, true>(step);
    } else {
      PassTurn();
    }
  }

  // Without a branch while products are under way: where there is one the
  // compiler has them wait for each other.
  template <bool kValues, bool kScores>
  __device__ __forceinline__ void MultiplyInTurn(int step) {
    constexpr int kStages = Block::kStages;
    const uint4* const values = block_.ValuesOf((step + kStages - 1) % kStages);
    const uint4* const keys = block_.KeysOf(step % kStages);
    BeginProducts();
#pragma unroll
    for (int i = 0; kValues && i < kStep / 16; ++i) {
      MultiplyAddColumns(sums_.values, pairs_[2 * i], pairs_[2 * i + 1], values,
                         kStep, i);
    }
#pragma unroll
    for (int i = 0; kScores && i < kDims / 16; ++i) {
      MultiplyAddWide(scores_, block_.QueriesOf(i / 4),
                      keys + i / 4 * Block::kStepSlab, i % 4, i > 0);
    }
    CommitProducts();
    PassTurn();
    WaitProducts<0>();
    TakeSums(sums_.values);
    TakeSums(scores_);
    KeepUntilHere(pairs_);
  }

  __device__ __forceinline__ void PassTurn() const {
    if (block_.lane == 0) Arrive(block_.turns + 1 - block_.Group());
  }

  const AttentionArgs& args_;
  const Block& block_;
  StreamQueries<kDims> queries_;
  StreamSums<kDims> sums_;  // of the split
  StreamSums<kDims> all_;   // of the splits before it
  StepScores scores_ = {};
  uint32_t pairs_[kStep / 8][2] = {};
};

template <int kDims>
__device__ __forceinline__ void AttendWide(const AttentionArgs& args, int parts,
                                           uint4* shared) {
  using Block = WideStreamBlock<kDims>;
  LaunchDependents();
  const SplitRule rule = args.rule();
  // The latest, which are the longest, first.
  const AttentionTile tile = args.tiles[gridDim.x - 1 - blockIdx.x];
  const TileQueries who(args, tile, static_cast<int>(blockIdx.y), parts,
                        Block::kQueries);
  const TileSpan span = FindSpan(args, tile);
  if (who.count <= 0) return WaitForPrevious();
  const int split = rule.First(span.first, args.window);
  const int end = rule.Begin(rule.Of(span.last) + 1);
  const StreamRange range = {split, rule.Begin(split), min(end, span.last + 1)};
  const Block block(args.kv, RowPath(args.rows, tile.first_row), who.kv_head,
                    span.last, shared);
  if (threadIdx.x == 0) block.MakeBarriers();
  __syncthreads();
  if (block.warp >= Block::kWarps) {
    LeaveRegisters<40>();  // of 168
    CopyWideSteps(block, range);
  } else {
    TakeRegisters<232>();
    WaitForPrevious();
    WideTaker<kDims>(args, who, block).Run(range);
  }
}

#endif  // NACRE_WIDE_PRODUCTS

// What the kernel is given. `parts`: of a KV head's query heads.
struct WideAttention {
  AttentionArgs args;
  int parts;

  bool operator==(const WideAttention&) const = default;
};

// One block for each tile (x) and KV head and part of its query heads (y), for
// all splits.
template <int kDims>
__global__ void __launch_bounds__(WideStreamBlock<kDims>::kThreads, 1)
    WideStreamKernel(const WideAttention of) {
#if NACRE_WIDE_PRODUCTS
  extern __shared__ uint4 shared[];
  AttendWide<kDims>(of.args, of.parts, shared);
#else
  __trap();
#endif
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_WIDE_CUH_
