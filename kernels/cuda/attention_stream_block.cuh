// What a block of attention over bf16 keys and values of up to 128 dimensions
// has in shared memory, and how it gets there. It comes in steps of 64
// positions, of which one arrives while the one before is used. Some warps
// copy, others compute.
//
// Scores: rows of A are queries, columns of B positions. A pair of inputs of
// the instruction is a word of the cache: a pair of dimensions of one position.
// A lane's 16 bytes are such words of 4 positions in a row. So column c of tile
// j is position 4 c + j of 32. Values: columns of B are dimensions, and a pair
// of inputs two positions. They are those of the lane's own scores, whose
// weights are A as they are. Vectors are swizzled so that no two lanes of a
// load meet in a bank.

#ifndef KERNELS_CUDA_ATTENTION_STREAM_BLOCK_CUH_
#define KERNELS_CUDA_ATTENTION_STREAM_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu and persistent.cu include this

constexpr int kStep = 64;  // positions; decides bits
static_assert(kAttentionSplit % kStep == 0);

// Where the positions are that a block reads, of one KV head.
struct StreamPath {
  // Where a position's key is: elements from PagedKv::blocks to its block's
  // keys of the head, and how many positions are before it there.
  struct Place {
    size_t keys;
    int offset;
  };
  static_assert(sizeof(Place) == sizeof(uint4));

  const PagedKv& kv;
  RowPath path;  // of all rows of the tile, as far as it goes
  int kv_head;
  int last;         // position of the tile
  int block_shift;  // block_size is 2 to this; below 0: it is not

  __device__ StreamPath(const PagedKv& paged, const RowPath& row_path, int head,
                        int last_position)
      : kv(paged),
        path(row_path),
        kv_head(head),
        last(last_position),
        block_shift(0) {
    while (1 << block_shift < kv.block_size) ++block_shift;
    if (1 << block_shift != kv.block_size) block_shift = -1;
  }

  __device__ Place Find(int position) const {
    const bool in_tail = position >= path.tail_begin;
    const int slot = in_tail ? path.tail[position - path.tail_begin] : position;
    const int block =
        block_shift >= 0 ? slot >> block_shift : slot / kv.block_size;
    const int2 at = make_int2(in_tail ? block : path.table[block],
                              slot - block * kv.block_size);
    return {FindHead(kv, at, kv_head).keys, at.y};
  }
};

// `kWarps` warps of 16 queries; a head has up to `kDims` dimensions.
template <int kWarps, int kDims>
struct StreamBlock : StreamPath {
  // After them as many warps that copy 32 positions each.
  static constexpr int kCopiers = kStep / 32;
  static constexpr int kThreads = 32 * (kWarps + kCopiers);
  static constexpr int kQueries = 16 * kWarps;
  // Vectors of 16 bytes: of a pair's keys, of a value, of a step.
  static constexpr int kKeyRow = kStep / 4;
  static constexpr int kValueRow = kDims / 8;
  static constexpr int kKeys = kDims / 2 * kKeyRow;
  static constexpr int kValues = kStep * kValueRow;
  static constexpr int kStage = kKeys + kValues;

  // Of a lane: of its queries, and of their sums.
  static constexpr int kLaneQueries = kDims / 16;
  static constexpr int kLaneSums = kDims / 8 + 1;

  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  uint4* stages;   // 2: keys [pairs][kKeyRow], values [kStep][kValueRow]
  Place* places;   // [kStep]
  uint4* queries;  // a lane's: [kDims / 16], 32 apart
  float4* kept;  // likewise, where they are kept: its sums of the splits before

  __device__ StreamBlock(const PagedKv& paged, const RowPath& row_path,
                         int head, int last_position, uint4* memory)
      : StreamPath(paged, row_path, head, last_position),
        stages(memory),
        places(reinterpret_cast<Place*>(memory + 2 * kStage)),
        queries(memory + 2 * kStage + kStep + warp * kLaneQueries * 32 + lane),
        kept(reinterpret_cast<float4*>(memory + 2 * kStage + kStep +
                                       kWarps * kLaneQueries * 32) +
             warp * kLaneSums * 32 + lane) {}
  static constexpr size_t Bytes(bool keeps) {
    return sizeof(uint4) *
           (2 * kStage + kStep +
            32 * kWarps * (kLaneQueries + (keeps ? kLaneSums : 0)));
  }

  __device__ uint4* KeysOf(int stage) const { return stages + stage * kStage; }
  __device__ uint4* ValuesOf(int stage) const {
    return stages + stage * kStage + kKeys;
  }
  // Rows of keys that differ modulo 4 are read at the same time, and positions
  // that differ modulo 8 in units of 4.
  __device__ static int KeyAt(int pair, int vector) {
    return pair * kKeyRow + (vector ^ 2 * (pair % 4));
  }
  __device__ static int ValueAt(int position, int vector) {
    return position * kValueRow + (vector ^ (position / 4 % 8));
  }

  // Positions of a step whose scores a lane has, the first of them at `begin`:
  // x and y of its i-th four are those of a query at this one and kApart later.
  // So are z and w of its other query.
  static constexpr int kApart = 4;
  static constexpr int kTileApart = 1;  // of i even and i + 1
  __device__ int LaneBegin(int step_begin) const {
    return step_begin + 8 * (lane % 4);
  }
  __device__ int LanePosition(int begin, int i) const {
    return begin + i / 4 * 32 + i % 4;
  }

  // A lane's part of its queries: of 16 dimensions from 16 `step` on.
  __device__ void KeepQueries(int step, const uint4& part) const {
    queries[step * 32] = part;
  }

  // The first position of this warp's part of a step, if it copies.
  __device__ int Part() const { return 32 * (warp - kWarps); }

  // All threads of the block, those that copy and those that do not.
  __device__ void Meet() const { GroupBarrier<kThreads>(0); }

  // Of the lane's position of the part at `begin`, before `end`.
  __device__ Place FindPlace(int begin, int end) const {
    return Find(min(begin + lane, end - 1));
  }
  // With the other lanes of the warp.
  __device__ void SharePlace(const Place& place) const {
    __syncwarp();
    places[Part() + lane] = place;
    __syncwarp();
  }

  // The warp's part, at `begin`, of a step; its places are shared. Pairs up to
  // a multiple of 8 become zeros: what a query lacks is multiplied by them.
  // Positions past the last are zeros, too.
  __device__ void CopyKeys(int stage, int begin) const {
    const int position = 4 * (lane % 8);
    const int vector = Part() / 4 + lane % 8;
    const Place* const at = places + Part() + position;
    const int pairs = kv.head_dim / 2;
    const int end = (pairs + 7) / 8 * 8;
    uint4* const keys = KeysOf(stage);
    const auto* const words = static_cast<const uint32_t*>(kv.blocks);
    // Four positions in a row, unless they lie in slots.
    if (kv.block_size % 4 == 0 && begin + 32 <= path.tail_begin) {
      const bool is_there = begin + position <= last;
      const int there = is_there ? pairs : 0;
      const uint32_t* const from =
          words + (is_there ? at->keys / 2 + at->offset : 0);
#pragma unroll 8
      for (int pair = lane / 8; pair < end; pair += 4) {
        CopyVector(keys + KeyAt(pair, vector),
                   reinterpret_cast<const char*>(from + pair * kv.block_size),
                   pair < there);
      }
      return;
    }
#pragma unroll 1
    for (int pair = lane / 8; pair < end; pair += 4) {
      uint32_t word[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (begin + position + i <= last && pair < pairs) {
          word[i] = words[at[i].keys / 2 + at[i].offset + pair * kv.block_size];
        }
      }
      keys[KeyAt(pair, vector)] =
          make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  // What lies past the last position, or past the last dimension, becomes
  // zero: it meets weights of zero, or is not used.
  __device__ void CopyValues(int stage, int begin) const {
    constexpr int kRows = 32 / kValueRow;
    const int vector = lane % kValueRow;
    const int first = lane / kValueRow;
    const int d = 8 * vector;
    uint4* const values = ValuesOf(stage);
    const Place* const at = places + Part();
    const auto* const elements =
        static_cast<const uint16_t*>(kv.blocks) + kv.block_size * kv.head_dim;
    if (kv.head_dim % 8 == 0) {
      const int there = d < kv.head_dim ? last - begin : -1;
      const ValueColumn column = FindColumn(kv, min(d, kv.head_dim - 8));
      const uint16_t* const from = elements + column.begin;
#pragma unroll 8
      for (int p = first; p < 32; p += kRows) {
        CopyVector(values + ValueAt(Part() + p, vector),
                   reinterpret_cast<const char*>(from + at[p].keys +
                                                 at[p].offset * column.width),
                   p <= there);
      }
      return;
    }
    const ValueColumn column = FindColumn(kv, min(d, kv.head_dim - 1));
#pragma unroll 1
    for (int p = first; p < 32; p += kRows) {
      const auto* const words = reinterpret_cast<const uint32_t*>(
          elements + column.begin + at[p].keys + at[p].offset * column.width);
      const int there = begin + p <= last ? (kv.head_dim - d) / 2 : 0;
      values[ValueAt(Part() + p, vector)] =
          make_uint4(there > 0 ? words[0] : 0, there > 1 ? words[1] : 0,
                     there > 2 ? words[2] : 0, there > 3 ? words[3] : 0);
    }
  }

  // B of `group` (of 16 positions) for tiles 2 `pair` and 2 `pair` + 1 of 8
  // dimensions: two words each.
  __device__ void LoadValues(int stage, int group, int pair,
                             uint32_t (&b)[4]) const {
    const int row = lane % 8;
    // ValueAt, of which the group moves the position only.
    const int position = row / 2 * 8 + row % 2 * 4 + lane / 8 % 2;
    const int vector = (2 * pair + lane / 16) ^ row;
    const uint4* const from = ValuesOf(stage) + position * kValueRow + vector;
    LoadTransposed(from + (group / 2 * 32 + group % 2 * 2) * kValueRow, b);
  }

  // Whether a value of positions first to end - 1 is infinite or NaN.
  __device__ bool AnyNotFinite(int stage, int first, int end) const {
    bool found = false;
    const uint4* const values = ValuesOf(stage);
    for (int i = first * kValueRow + lane; i < end * kValueRow; i += 32) {
      found = found || HasNotFinite(values[i]);
    }
    return __any_sync(kAllLanes, found);
  }
};

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_STREAM_BLOCK_CUH_
