// As attention_stream_block.cuh, for a block whose warpgroups multiply as one
// (wide_products.cuh): what it has in shared memory, and how it gets there.
//
// Keys and values are rows of 64 dimensions, one a position, as those products
// want them. The cache has a key as words of two dimensions, apart by block
// size. So each word is copied by itself, and no copy engine can. Rows are in
// an order of their own: 16 rows after each other are a group of positions that
// attention_stream.cuh adds values of, in its order of groups. Within a group
// the order is free. It is such that the 8 positions whose words lie together
// in the cache come to 8 rows that differ modulo 8: no two of their words meet
// in a bank. A lane's scores are columns of such rows, and its weights are A of
// the product with values as they are.

#ifndef KERNELS_CUDA_ATTENTION_WIDE_BLOCK_CUH_
#define KERNELS_CUDA_ATTENTION_WIDE_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_stream_block.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/shared_barriers.cuh"
#include "kernels/cuda/wide_products.cuh"
#include "kernels/cuda/wide_shared.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention_wide.cu includes this

// Heads have `kDims` dimensions, a multiple of 64.
template <int kDims>
struct WideStreamBlock : StreamPath {
  static constexpr int kWarps = 8;       // of 16 queries
  static constexpr int kGroupWarps = 4;  // of a warpgroup
  // After them a warpgroup that copies, 16 positions of a step a warp.
  static constexpr int kPart = kStep / kGroupWarps;
  static constexpr int kThreads = 32 * (kWarps + kGroupWarps);
  static constexpr int kQueries = 16 * kWarps;
  static constexpr int kStages = 4;
  static constexpr int kAhead = 2;  // steps whose copies are under way
  // Vectors of 16 bytes. A row of 64 dimensions has 8; a slab of `kSlabs` has
  // such rows of all queries, or of all positions of a step.
  static constexpr int kSlabs = kDims / 64;
  static constexpr int kStepSlab = kStep * 8;
  static constexpr int kQuerySlab = kQueries * 8;
  static constexpr int kKeys = kSlabs * kStepSlab;
  static constexpr int kStage = 2 * kKeys;

  // Of a lane's sums of the splits before: for the rest it has registers.
  static constexpr int kKept = 3;

  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  uint4* queries;   // [kSlabs][kQueries][8]
  uint4* stages;    // [kStages]: keys [kSlabs][kStep][8], values likewise
  Place* places;    // [kStep]
  float4* kept;     // a lane's: [kKept], 32 apart
  uint64_t* full;   // [kStages]: a step is there
  uint64_t* free;   // [kStages]: it is done with
  uint64_t* turns;  // [2]: a warpgroup may have its products begin

  __device__ WideStreamBlock(const PagedKv& paged, const RowPath& row_path,
                             int head, int last_position, uint4* memory)
      : StreamPath(paged, row_path, head, last_position),
        queries(WideShared(memory)),
        stages(queries + kSlabs * kQuerySlab),
        places(reinterpret_cast<Place*>(stages + kStages * kStage)),
        kept(reinterpret_cast<float4*>(places + kStep) + warp * kKept * 32 +
             lane),
        full(reinterpret_cast<uint64_t*>(places + kStep) +
             kWarps * kKept * 32 * sizeof(float4) / sizeof(uint64_t)),
        free(full + kStages),
        turns(free + kStages) {}
  static constexpr size_t Bytes() {
    return kWideAlignment +
           sizeof(uint4) * (kSlabs * kQuerySlab + kStages * kStage + kStep +
                            32 * kWarps * kKept) +
           sizeof(uint64_t) * (2 * kStages + 2);
  }

  // By one thread.
  __device__ void MakeBarriers() const {
    for (int stage = 0; stage < kStages; ++stage) {
      MakeBarrier(full + stage, kGroupWarps);
      MakeBarrier(free + stage, kWarps);
    }
    for (int group = 0; group < 2; ++group) {
      MakeBarrier(turns + group, kGroupWarps);
    }
  }

  __device__ int Group() const { return warp / kGroupWarps; }
  __device__ uint4* KeysOf(int stage) const { return stages + stage * kStage; }
  __device__ uint4* ValuesOf(int stage) const {
    return stages + stage * kStage + kKeys;
  }
  // Bits of RowOf, VectorAt and ValueAt are bits of what they are given, or
  // those under ^. So what p ^ q gives is what p gives ^ what q gives.
  __device__ static constexpr int RowOf(unsigned position) {
    const unsigned t = position / 8 % 4;
    const unsigned pair = position / 2 % 2;
    return position / 32 * 32 + pair * 16 + t / 2 * 8 + (t % 2 ^ pair) * 4 +
           position / 4 % 2 * 2 + position % 2;
  }
  // Of a row in a slab.
  __device__ static constexpr int VectorAt(int row, int vector) {
    return row * 8 + (vector ^ row % 8);
  }
  __device__ static constexpr int ValueAt(int position, int vector) {
    return vector / 8 * kStepSlab + VectorAt(RowOf(position), vector % 8);
  }

  // As of StreamBlock: columns 2t and 2t + 1 of tile `i` of 8 rows.
  static constexpr int kApart = 1;
  static constexpr int kTileApart = 16;
  __device__ int LaneBegin(int step_begin) const {
    return step_begin + 4 * (lane % 4);
  }
  __device__ int LanePosition(int begin, int i) const {
    const int other = lane % 4 < 2 ? 10 : -6;
    return begin + i / 4 * 32 + i % 2 * 16 + (i / 2 % 2 == 1 ? other : 0);
  }

  __device__ void KeepQueries(int step, const uint4& part) const {
    auto* const words = reinterpret_cast<uint32_t*>(
        queries + step / 4 * kQuerySlab + 16 * warp * 8);
    const int row = lane / 4;
    const auto keep = [&](int at_row, int half, uint32_t word) {
      StoreForProducts(
          words + 4 * VectorAt(at_row, step % 4 * 2 + half) + lane % 4, word);
    };
    keep(row, 0, part.x);
    keep(row + 8, 0, part.y);
    keep(row, 1, part.z);
    keep(row + 8, 1, part.w);
  }
  // Those of the warpgroup: 64 rows of slab `slab`.
  __device__ const uint4* QueriesOf(int slab) const {
    return queries + slab * kQuerySlab + Group() * kGroupWarps * 16 * 8;
  }

  // The first position of this warp's part of a step, if it copies.
  __device__ int Part() const { return kPart * (warp - kWarps); }

  // Of the lane's position of the part at `begin`, before `end`.
  __device__ Place FindPlace(int begin, int end) const {
    return Find(min(begin + lane % kPart, end - 1));
  }
  // With the other lanes of the warp.
  __device__ void SharePlace(const Place& place) const {
    __syncwarp();
    if (lane < kPart) places[Part() + lane] = place;
    __syncwarp();
  }

  // The warp's part, at `begin`, of a step; its places are shared. Positions
  // past the last are zeros.
  __device__ void CopyKeys(int stage, int begin) const {
    const auto* const words = static_cast<const uint32_t*>(kv.blocks);
    auto* const keys = reinterpret_cast<uint32_t*>(KeysOf(stage));
    int first = ValueAt(Part() + lane % 8, 0);
#pragma unroll 1
    for (int position = lane % 8; position < kPart; position += 8) {
      const Place& at = places[Part() + position];
      const bool is_there = begin + position <= last;
      const uint32_t* from = words + (is_there ? at.keys / 2 + at.offset : 0) +
                             lane / 8 * kv.block_size;
#pragma unroll
      for (int vector = 0; vector < 8; ++vector) {
        uint32_t* const to = keys + 4 * (first ^ vector) + lane / 8;
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
          CopyWord(to + 4 * slab * kStepSlab, from + 32 * slab * kv.block_size,
                   is_there);
        }
        from += 4 * kv.block_size;
      }
      first ^= ValueAt(8, 0);
    }
  }
  __device__ void CopyValues(int stage, int begin) const {
    constexpr int kRow = kDims / 8;  // vectors of a position
    constexpr int kRows = 32 / kRow;
    const int vector = lane % kRow;
    const auto* const from =
        static_cast<const uint16_t*>(kv.blocks) +
        (kDims + vector / 8 * kValueGroup) * kv.block_size + vector % 8 * 8;
    const Place* const at = places + Part() + lane / kRow;
    const int first = ValueAt(Part() + lane / kRow, vector);
    const int there = last - begin - lane / kRow;
#pragma unroll
    for (int p = 0; p < kPart; p += kRows) {
      CopyVector(ValuesOf(stage) + (first ^ ValueAt(p, 0)),
                 reinterpret_cast<const char*>(from + at[p].keys +
                                               at[p].offset * kValueGroup),
                 p <= there);
    }
  }

  // As of StreamBlock, for what its warps do by themselves.
  __device__ void LoadValues(int stage, int group, int pair,
                             uint32_t (&b)[4]) const {
    const int vector = 2 * pair + lane / 16;
    LoadTransposed(ValuesOf(stage) + vector / 8 * kStepSlab +
                       VectorAt(16 * group + lane % 16, vector % 8),
                   b);
  }
  __device__ bool AnyNotFinite(int stage, int first, int end) const {
    constexpr int kRow = kDims / 8;
    bool found = false;
    for (int i = first * kRow + lane; i < end * kRow; i += 32) {
      found =
          found || HasNotFinite(ValuesOf(stage)[ValueAt(i / kRow, i % kRow)]);
    }
    return __any_sync(kAllLanes, found);
  }
};

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_WIDE_BLOCK_CUH_
