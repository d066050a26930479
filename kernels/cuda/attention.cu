#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_bf16.cuh"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_stream.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_wide.h"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

// Attention over keys and values of float32, on CUDA cores; for bf16 see
// attention_stream.cuh and attention_bf16.cuh.
//
// How memory is read. Scores: a thread is a position. So a warp reads runs of
// block_size words of the keys (64 bytes for blocks of 16), every byte once for
// all queries of the tile. Values: a thread is four dimensions of some
// positions, so it reads 16 bytes and a position's lie together. Nothing is
// staged in shared memory: enough blocks fit on a multiprocessor to keep its
// loads in flight.

namespace nacre::kernels::cuda {
namespace {

constexpr int kThreads = kAttentionSplit;
constexpr int kWarps = kThreads / 32;
// Blocks that a multiprocessor is to have room for: 80 registers a thread,
// which is what eight queries need.
constexpr int kMinBlocks = 6;

// A block's shared memory, one piece after the other, each aligned to 16
// bytes.
template <int kQueries>
struct Shared {
  float4* sums;    // [groups][kQueries][vectors]: kThreads * kQueries
  float* queries;  // [head_dim][kQueries]
  float* weights;  // [kThreads][kQueries]: scores, then their exponentials
  size_t* values;  // [kThreads]: KvPlace::values of the positions
  int* offsets;    // [kThreads]
  float* maxima;   // [kQueries]
  float* totals;   // [kQueries]

  __device__ explicit Shared(uint4* memory) {
    sums = reinterpret_cast<float4*>(memory);
    values = reinterpret_cast<size_t*>(sums + kThreads * kQueries);
    offsets = reinterpret_cast<int*>(values + kThreads);
    weights = reinterpret_cast<float*>(offsets + kThreads);
    maxima = weights + kThreads * kQueries;
    totals = maxima + kMostTileQueries;
    queries = totals + kMostTileQueries;
  }
  static size_t Bytes(int head_dim) {
    return sizeof(float4) * kThreads * kQueries +
           (sizeof(size_t) + sizeof(int)) * kThreads +
           sizeof(float) * (kThreads * kQueries + 2 * kMostTileQueries +
                            head_dim * kQueries);
  }
};

// How the threads share dimensions and positions: `vectors` threads have four
// dimensions each of one position, the next group of threads the next range of
// positions. Follows from head_dim.
__device__ __forceinline__ int VectorsOf(int head_dim) {
  int vectors = 1;
  while (vectors * 4 < head_dim) vectors *= 2;
  return vectors;
}

// Adds one position's key to its scores, dimension by dimension.
template <int kQueries>
__device__ __forceinline__ void Score(const float* keys, int head_dim,
                                      int stride, const float* queries,
                                      float* scores) {
#pragma unroll 8
  for (int d = 0; d < head_dim; ++d) {
    const float key = keys[static_cast<size_t>(d) * stride];
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      scores[i] = fmaf(queries[d * kQueries + i], key, scores[i]);
    }
  }
}

// The last position of the split at `begin` that each query may see, and that
// any may; below 0: none.
template <int kQueries>
__device__ __forceinline__ int FindLimits(const AttentionArgs& args,
                                          const TileQueries& queries, int begin,
                                          int (&limits)[kQueries]) {
  int last = -1;
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    limits[i] = -1;
    if (i < queries.count) {
      limits[i] = args.rows.positions[queries.Row(i)] - begin;
      // Its window begins past the split.
      if (limits[i] - (kAttentionSplit - 1) >= args.window) limits[i] = -1;
    }
    last = max(last, limits[i]);
  }
  return last;
}

template <int kQueries>
__device__ __forceinline__ void ShareQueries(const AttentionArgs& args,
                                             const TileQueries& queries,
                                             const Shared<kQueries>& memory) {
  const int head_dim = args.kv.head_dim;
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    const bool present = i < queries.count;
    const float* const query =
        present ? args.q + static_cast<size_t>(queries.Row(i)) * args.q_stride +
                      static_cast<size_t>(queries.Head(i)) * head_dim
                : nullptr;
    for (int d = threadIdx.x; d < head_dim; d += kThreads) {
      memory.queries[d * kQueries + i] = present ? query[d] : 0.0f;
    }
  }
}

// Scores of this thread's position, and where its values are.
template <int kQueries>
__device__ __forceinline__ void ScorePosition(const AttentionArgs& args,
                                              const AttentionTile& tile,
                                              int kv_head, int begin, int last,
                                              const Shared<kQueries>& memory) {
  const PagedKv& kv = args.kv;
  const int thread = threadIdx.x;
  float scores[kQueries] = {};
  if (thread <= last) {
    const KvPlace place = FindPosition(kv, RowPath(args.rows, tile.first_row),
                                       begin + thread, kv_head);
    const float* const keys =
        static_cast<const float*>(kv.blocks) + place.keys + place.offset;
    Score<kQueries>(keys, kv.head_dim, kv.block_size, memory.queries, scores);
    memory.values[thread] = place.values;
    memory.offsets[thread] = place.offset;
  }
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    const float score = scores[i] * args.scale;
    memory.weights[thread * kQueries + i] =
        args.soft_cap > 0 ? Capped(score, args.soft_cap) : score;
  }
}

// Scores become weights. A warp a query: lane l has positions l, l + 32,
// l + 64, l + 96.
template <int kQueries>
__device__ __forceinline__ void WeighPositions(const int (&limits)[kQueries],
                                               int window,
                                               const Shared<kQueries>& memory) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    if (i % kWarps != threadIdx.x / 32 || limits[i] < 0) continue;
    float maximum = __int_as_float(kMinusInfinityBits);
#pragma unroll
    for (int p = lane; p < kAttentionSplit; p += 32) {
      if (Sees(p, limits[i], window)) {
        maximum = fmaxf(maximum, memory.weights[p * kQueries + i]);
      }
    }
    maximum = WarpMax(maximum);
    float total = 0;
#pragma unroll
    for (int p = lane; p < kAttentionSplit; p += 32) {
      if (Sees(p, limits[i], window)) {
        float* const weight = memory.weights + p * kQueries + i;
        *weight = Exp(*weight - maximum);
        total += *weight;
      }
    }
    total = WarpSum(total);
    if (lane == 0) {
      memory.maxima[i] = maximum;
      memory.totals[i] = total;
    }
  }
}

// Weighted sums of this thread's positions and dimensions.
template <int kQueries>
__device__ __forceinline__ void SumValues(const PagedKv& kv, int vectors,
                                          const int (&limits)[kQueries],
                                          int last, int window,
                                          const Shared<kQueries>& memory) {
  const int head_dim = kv.head_dim;
  const int thread = threadIdx.x;
  const int vector = thread % vectors;
  const int d = 4 * vector;
  float4 sums[kQueries] = {};
  if (d < head_dim) {
    const ValueColumn column = FindColumn(kv, d);
    const auto* const values =
        static_cast<const float*>(kv.blocks) + column.begin;
    const int first = thread / vectors * vectors;
    const int end = min(first + vectors, last + 1);
#pragma unroll 4
    for (int p = first; p < end; ++p) {
      const float4 value =
          LoadFour(values + memory.values[p] +
                       static_cast<size_t>(memory.offsets[p]) * column.width,
                   head_dim - d, head_dim % 4 == 0);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (Sees(p, limits[i], window)) {
          const float weight = memory.weights[p * kQueries + i];
          sums[i].x = fmaf(weight, value.x, sums[i].x);
          sums[i].y = fmaf(weight, value.y, sums[i].y);
          sums[i].z = fmaf(weight, value.z, sums[i].z);
          sums[i].w = fmaf(weight, value.w, sums[i].w);
        }
      }
    }
  }
  const int row_of_sums = thread / vectors * kQueries;
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    memory.sums[(row_of_sums + i) * vectors + vector] = sums[i];
  }
}

// Adds the groups' sums in turn: of queries that see one split the result, of
// others the split's part for MergeKernel.
template <int kQueries>
__device__ __forceinline__ void WriteSplit(const AttentionArgs& args,
                                           const TileQueries& queries,
                                           int vectors, int split,
                                           const int (&limits)[kQueries],
                                           const Shared<kQueries>& memory) {
  const int head_dim = args.kv.head_dim;
  const int thread = threadIdx.x;
  const int groups = kThreads / vectors;
  const auto* const all = reinterpret_cast<const float*>(memory.sums);
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    if (limits[i] < 0) continue;
    const int row = queries.Row(i);
    const size_t query =
        static_cast<size_t>(row) * args.num_heads + queries.Head(i);
    float* const partial = PartialOf(args, query, split);
    const int position = split * kAttentionSplit + limits[i];
    const bool only =
        SplitRule().First(position, args.window) == SplitRule().Of(position);
    for (int e = thread; e < head_dim; e += kThreads) {
      float total = all[static_cast<size_t>(i) * 4 * vectors + e];
      for (int g = 1; g < groups; ++g) {
        total += all[(static_cast<size_t>(g) * kQueries + i) * 4 * vectors + e];
      }
      if (only) {
        args.out[query * head_dim + e] = WeightedMean(total, memory.totals[i]);
      } else {
        partial[2 + e] = total;
      }
    }
    if (thread == 0 && !only) {
      partial[0] = memory.maxima[i];
      partial[1] = memory.totals[i];
    }
  }
}

// One block for each tile (x), KV head and part of its query heads (y) and
// split (z).
template <int kQueries>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    AttendKernel(const AttentionArgs args, int parts) {
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const AttentionTile tile = args.tiles[blockIdx.x];
  const TileQueries queries(args, tile, static_cast<int>(blockIdx.y), parts,
                            kQueries);
  const int split = blockIdx.z;
  if (split < tile.first_split || split >= tile.end_split) return;
  const int begin = split * kAttentionSplit;
  int limits[kQueries];
  const int last = FindLimits(args, queries, begin, limits);
  if (last < 0) return;

  const Shared<kQueries> memory(shared);
  ShareQueries(args, queries, memory);
  __syncthreads();
  ScorePosition(args, tile, queries.kv_head, begin, last, memory);
  __syncthreads();
  WeighPositions(limits, args.window, memory);
  __syncthreads();
  const int vectors = VectorsOf(args.kv.head_dim);
  SumValues(args.kv, vectors, limits, last, args.window, memory);
  __syncthreads();
  WriteSplit(args, queries, vectors, split, limits, memory);
}

int PartsOf(const AttentionArgs& args, int queries) {
  const int group = args.num_heads / args.kv.num_kv_heads;
  return (args.max_tile_rows * group + queries - 1) / queries;
}

dim3 BlocksOf(const AttentionArgs& args, int parts, int splits) {
  return dim3(static_cast<unsigned>(args.num_tiles),
              static_cast<unsigned>(args.kv.num_kv_heads * parts),
              static_cast<unsigned>(splits));
}

template <int kQueries>
cudaError_t AttendF32(const Queue& queue, const AttentionArgs& args) {
  const int parts = PartsOf(args, kQueries);
  return LaunchKernel(queue,
                      {BlocksOf(args, parts, args.max_splits), kThreads,
                       Shared<kQueries>::Bytes(args.kv.head_dim)},
                      AttendKernel<kQueries>, args, parts);
}

// With as few accumulators as the longest tile needs.
cudaError_t AttendF32(const Queue& queue, const AttentionArgs& args) {
  const int queries =
      args.max_tile_rows * (args.num_heads / args.kv.num_kv_heads);
  if (queries == 1) return AttendF32<1>(queue, args);
  if (queries <= 4) return AttendF32<4>(queue, args);
  return AttendF32<kMostTileQueries>(queue, args);
}

template <bool kWhole, int kWarps, int kDims>
PhaseKind PhaseOf() {
  if (kWhole) return PhaseKind::kNone;
  if (kDims == 64) {
    return kWarps == 1   ? PhaseKind::kAttend1x64
           : kWarps == 2 ? PhaseKind::kAttend2x64
                         : PhaseKind::kNone;
  }
  return kWarps == 1   ? PhaseKind::kAttend1x128
         : kWarps == 2 ? PhaseKind::kAttend2x128
                       : PhaseKind::kNone;
}

template <bool kWhole, int kWarps, int kDims>
cudaError_t AttendStream(const Queue& queue, const AttentionArgs& args) {
  using Block = StreamBlock<kWarps, kDims>;
  const int parts = PartsOf(args, Block::kQueries);
  return LaunchKernel(
      queue,
      {BlocksOf(args, parts, kWhole ? 1 : args.max_splits), Block::kThreads,
       Block::Bytes(kWhole), PhaseOf<kWhole, kWarps, kDims>()},
      StreamKernel<kWhole, kWarps, kDims>, args, parts);
}

// Shared memory that a block of the current device can have.
size_t MostSharedBytes() {
  int device = 0;
  int most = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                             device) != cudaSuccess) {
    return 0;
  }
  return static_cast<size_t>(most);
}

// With as many warps as have room for what they keep.
template <int kDims>
cudaError_t AttendWhole(const Queue& queue, const AttentionArgs& args) {
  const size_t most = MostSharedBytes();
  if (args.wide && TakesWideAttention(args, most)) {
    return AttendWide(queue, args);
  }
  if (StreamBlock<8, kDims>::Bytes(true) <= most) {
    return AttendStream<true, 8, kDims>(queue, args);
  }
  if (StreamBlock<4, kDims>::Bytes(true) <= most) {
    return AttendStream<true, 4, kDims>(queue, args);
  }
  return AttendStream<true, 2, kDims>(queue, args);
}

// With as few warps as the longest tile needs; of more, fewer blocks fit on a
// multiprocessor.
template <int kDims>
cudaError_t AttendStream(const Queue& queue, const AttentionArgs& args) {
  const int queries =
      args.max_tile_rows * (args.num_heads / args.kv.num_kv_heads);
  if (args.whole) return AttendWhole<kDims>(queue, args);
  if (queries <= 16) return AttendStream<false, 1, kDims>(queue, args);
  if (queries <= 32) return AttendStream<false, 2, kDims>(queue, args);
  return AttendStream<false, 4, kDims>(queue, args);
}

template <int kTiles>
cudaError_t AttendBf16(const Queue& queue, const AttentionArgs& args) {
  using Block = Bf16Block<kTiles>;
  const int parts = PartsOf(args, Block::kQueries);
  return LaunchKernel(queue,
                      {BlocksOf(args, parts, args.max_splits), kBf16Threads,
                       Block::Bytes(args.kv.head_dim)},
                      Bf16Kernel<kTiles>, args, parts);
}

// With as few tiles of queries as the longest tile needs, if they fit.
cudaError_t AttendBf16(const Queue& queue, const AttentionArgs& args) {
  // What every device that we run on has.
  constexpr size_t kMostShared = 99 << 10;
  const int head_dim = args.kv.head_dim;
  const int queries =
      args.max_tile_rows * (args.num_heads / args.kv.num_kv_heads);
  if (head_dim <= 64) return AttendStream<64>(queue, args);
  if (head_dim <= kMostGrowingHeadDim) return AttendStream<128>(queue, args);
  if (queries > 32 && Bf16Block<4>::Bytes(head_dim) <= kMostShared) {
    return AttendBf16<4>(queue, args);
  }
  if (queries > 16 && Bf16Block<2>::Bytes(head_dim) <= kMostShared) {
    return AttendBf16<2>(queue, args);
  }
  return AttendBf16<1>(queue, args);
}

cudaError_t Merge(const Queue& queue, const AttentionArgs& args) {
  const dim3 blocks(
      static_cast<unsigned>(args.num_rows),
      static_cast<unsigned>(args.num_heads),
      static_cast<unsigned>((args.kv.head_dim + kMergeThreads - 1) /
                            kMergeThreads));
  const bool bf16 = args.kv.type == DType::kBF16;
  return LaunchKernel(queue,
                      {blocks, kMergeThreads, sizeof(MergeMemory),
                       bf16 ? PhaseKind::kMerge : PhaseKind::kNone},
                      bf16 ? MergeKernel<true> : MergeKernel<false>, args);
}

}  // namespace

cudaError_t Attend(const Queue& queue, const AttentionArgs& args) {
  const cudaError_t status = args.kv.type == DType::kBF16
                                 ? AttendBf16(queue, args)
                                 : AttendF32(queue, args);
  if (status != cudaSuccess || args.whole || args.max_splits == 1) {
    return status;
  }
  return Merge(queue, args);
}

}  // namespace nacre::kernels::cuda
