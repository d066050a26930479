// How the splits of a row become one: from the first to the last, each sum
// before brought to the larger of two maxima. What to multiply by follows from
// the maxima alone, so all of a row's are known before the first sum is read.

#ifndef KERNELS_CUDA_ATTENTION_MERGE_CUH_
#define KERNELS_CUDA_ATTENTION_MERGE_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu and persistent.cu include this

constexpr int kMergeThreads = 128;
// Splits that are read at the same time, where there are many and few.
constexpr int kManySplits = 32;
constexpr int kFewSplits = 8;

struct MergeMemory {
  // Of kMergeThreads splits: what the sum before and the split's are multiplied
  // by, and the total of its weights.
  float4 by[kMergeThreads];
  float maxima[kMergeThreads / 32];  // of a warp's splits
};

// The largest value of the lanes before, and of all.
__device__ __forceinline__ float2 MaximaBefore(float value) {
  float before = __int_as_float(kMinusInfinityBits);
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, distance);
    if ((threadIdx.x & distance) != 0) before = fmaxf(before, other);
    value = fmaxf(value, other);
  }
  return make_float2(before, value);
}

// Prepares splits `begin` to `begin` + kMergeThreads - 1 of the `splits` of a
// query, whose parts start at `parts`. Returns the largest score of all before
// the next.
template <bool kBase2, typename Here>
__device__ __forceinline__ float PrepareMerge(const Here& here,
                                              const float* parts, int stride,
                                              int begin, int splits,
                                              float maximum,
                                              MergeMemory* memory) {
  const int thread = threadIdx.x;
  const int split = begin + thread;
  float own = __int_as_float(kMinusInfinityBits);
  float total = 0;
  if (split < splits) {
    const float* const from = parts + static_cast<size_t>(split) * stride;
    own = from[0];
    total = from[1];
  }
  const float2 maxima = MaximaBefore(own);
  if (thread % 32 == 0) memory->maxima[thread / 32] = maxima.y;
  here.Meet();  // also: the splits before are merged
  float before = fmaxf(maximum, maxima.x);
#pragma unroll
  for (int warp = 0; warp < kMergeThreads / 32; ++warp) {
    if (warp < thread / 32) before = fmaxf(before, memory->maxima[warp]);
    maximum = fmaxf(maximum, memory->maxima[warp]);
  }
  MergeWeights by = WeightsOf<kBase2>(before, own);
  if (split == 0) by = {own, 0.0f, 1.0f};
  if (split >= splits) by = {own, 1.0f, 0.0f};  // adds nothing
  memory->by[thread] = make_float4(by.old_weight, by.new_weight, total, 0.0f);
  here.Meet();
  return maximum;
}

// Adds splits `begin` to `begin` + kAhead - 1 of the `count` that are prepared,
// whose parts are at `from`. Later ones add nothing.
template <int kAhead>
__device__ __forceinline__ void AddSplits(const MergeMemory& memory,
                                          const float* from, int stride,
                                          int begin, int count, float* total,
                                          float* sum) {
  float next[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    // Read without a branch, which the next would wait for.
    const int split = min(begin + k, count - 1);
    const float value = from[static_cast<size_t>(split) * stride];
    next[k] = begin + k < count ? value : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const float4 by = memory.by[begin + k];
    *total = *total * by.x + by.z * by.y;
    *sum = *sum * by.x + next[k] * by.y;
  }
}

// What a product is to read, so that no kernel of its own rounds.
__device__ __forceinline__ void StoreRounded(const AttentionArgs& args,
                                             size_t at, float mean) {
  if (args.rounded != nullptr) args.rounded[at] = RoundToBF16(mean);
}

// One block for each pair of a row (x) and a query head (y), and for so many
// dimensions as it has threads (z).
template <typename Here, bool kBase2>
__device__ __forceinline__ void MergeRow(const Here& here,
                                         const AttentionArgs& args) {
  here.LaunchDependents();
  here.WaitForPrevious();
  const SplitRule rule = args.rule();
  const int head_dim = args.kv.head_dim;
  const int row = args.first_row + static_cast<int>(here.index().x);
  const int position = args.rows.positions[row];
  const int first_split = rule.First(position, args.window);
  const int splits = rule.Of(position) + 1 - first_split;
  const size_t query =
      static_cast<size_t>(row) * args.num_heads + here.index().y;
  const int d = static_cast<int>(here.index().z) * kMergeThreads +
                static_cast<int>(threadIdx.x);
  const size_t at = query * head_dim + d;
  if (splits == 1) {  // the kernel before has written it
    if (d < head_dim) StoreRounded(args, at, args.out[at]);
    return;
  }
  auto* const memory = reinterpret_cast<MergeMemory*>(here.shared);
  const float* const parts = PartialOf(args, query, first_split);
  const int stride = head_dim + 2;
  const float* const from = parts + 2 + min(d, head_dim - 1);
  float maximum = __int_as_float(kMinusInfinityBits);
  float total = 0;
  float sum = 0;
  for (int begin = 0; begin < splits; begin += kMergeThreads) {
    maximum = PrepareMerge<kBase2>(here, parts, stride, begin, splits, maximum,
                                   memory);
    const int count = min(kMergeThreads, splits - begin);
    const float* const first = from + static_cast<size_t>(begin) * stride;
    int i = 0;
    for (; i + kManySplits <= count; i += kManySplits) {
      AddSplits<kManySplits>(*memory, first, stride, i, count, &total, &sum);
    }
    for (; i < count; i += kFewSplits) {
      AddSplits<kFewSplits>(*memory, first, stride, i, count, &total, &sum);
    }
  }
  if (d >= head_dim) return;
  const float mean = WeightedMean(sum, total);
  args.out[at] = mean;
  StoreRounded(args, at, mean);
}

template <bool kBase2>
__global__ void __launch_bounds__(kMergeThreads)
    MergeKernel(const AttentionArgs args) {
  extern __shared__ uint4 shared[];
  MergeRow<KernelBlock, kBase2>({shared}, args);
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_MERGE_CUH_
