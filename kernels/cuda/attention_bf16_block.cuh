// What a block of attention over bf16 keys and values of more than 128
// dimensions has in shared memory. How it gets there, and which of it a lane
// hands to the tensor cores.
//
// Scores: rows of A are queries, columns of B positions. A pair of inputs of
// the instruction is a word of the cache: a pair of dimensions of one position.
// A lane's 16 bytes are such words of 4 positions in a row. So column c of tile
// j is position 4 c + j of the warp's 32. Values: columns of B are dimensions,
// and a pair of inputs two positions, which the lane puts together from words
// of both. It takes the positions of its own scores: their weights are A as
// they are. One warp uses each byte of the cache, and waits for its own copies.
// Vectors are swizzled so that no two lanes meet in a bank.

#ifndef KERNELS_CUDA_ATTENTION_BF16_BLOCK_CUH_
#define KERNELS_CUDA_ATTENTION_BF16_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only attention.cu includes this

constexpr int kBf16Threads = 128;
constexpr int kBf16Warps = kBf16Threads / 32;
constexpr int kWarpPositions = kAttentionSplit / kBf16Warps;
static_assert(kAttentionSplit == kBf16Threads && kWarpPositions == 32);

// `kTiles` tiles of 16 queries; kDims dimensions of keys and of values are
// there at a time, a chunk.
template <int kTiles>
struct Bf16Block {
  static constexpr int kDims = 128;
  // Tiles of 8 dimensions, and as many vectors of a value, that a warp has.
  static constexpr int kParts = kDims / 32;
  static constexpr int kWarpDims = 8 * kParts;
  static constexpr int kQueries = 16 * kTiles;
  // Vectors of shared memory; of keys and values, a warp's.
  static constexpr int kKeys = kDims / 2 * 8;  // [pairs][8] of 4 positions
  static constexpr int kValues = kAttentionSplit * kParts;
  static constexpr int kWeights = kAttentionSplit / 16 * kTiles * 32;
  static constexpr int kPlaces = kAttentionSplit / 2;
  static constexpr int kRowSums = kBf16Warps * kQueries / 4;

  const PagedKv& kv;
  RowPath path;  // of all rows of the tile, as far as it goes
  int kv_head;
  int last;   // position of the tile
  int count;  // queries
  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  uint4* keys;     // this warp's
  uint4* values;   // likewise
  uint4* weights;  // [steps of 16 positions][kTiles][lanes]
  int2* places;    // of a split's positions: block, offset in it
  float* maxima;   // [warps][kQueries]
  float* totals;   // likewise
  uint4* queries;  // [steps of 16 dimensions][kTiles][lanes]

  __device__ Bf16Block(const PagedKv& paged, const RowPath& row_path,
                       const TileQueries& who, int last_position, uint4* memory)
      : kv(paged),
        path(row_path),
        kv_head(who.kv_head),
        last(last_position),
        count(who.count) {
    keys = memory + warp * kKeys;
    values = memory + kBf16Warps * kKeys + warp * kValues;
    weights = memory + kBf16Warps * (kKeys + kValues);
    places = reinterpret_cast<int2*>(weights + kWeights);
    maxima = reinterpret_cast<float*>(weights + kWeights + kPlaces);
    totals = maxima + kBf16Warps * kQueries;
    queries = weights + kWeights + kPlaces + 2 * kRowSums;
  }
  static constexpr size_t Bytes(int head_dim) {
    return sizeof(uint4) *
           (kBf16Warps * (kKeys + kValues) + kWeights + kPlaces + 2 * kRowSums +
            static_cast<size_t>((head_dim + 15) / 16) * kTiles * 32);
  }

  // First of the warp's dimensions in a chunk.
  __device__ int FirstDim(int chunk) const {
    return chunk * kDims + warp * kWarpDims;
  }

  // Thread i finds position i of the split.
  __device__ void FindPlaces(int begin) const {
    const int position = begin + static_cast<int>(threadIdx.x);
    places[threadIdx.x] =
        position <= last ? FindBlock(kv, path, position) : make_int2(0, 0);
  }

  // The warp's positions of a split that starts at `begin`. Pairs up to a
  // multiple of 8 become zeros: what a query lacks is multiplied by them.
  __device__ void CopyKeys(int begin, int chunk) const {
    const int warp_begin = begin + warp * kWarpPositions;
    if (warp_begin > last) return;
    const int position = warp_begin + 4 * (lane % 8);
    const int first = chunk * kDims / 2;
    const int pairs = min(kDims / 2, kv.head_dim / 2 - first);
    // Lanes with the same lane / 8 have pairs that are equal modulo 4.
    uint4* const to = keys + (lane % 8 ^ 2 * (lane / 8));
    const auto* const words = static_cast<const uint32_t*>(kv.blocks);
    // Four positions in a row, unless they lie in slots.
    if (kv.block_size % 4 == 0 &&
        warp_begin + kWarpPositions <= path.tail_begin) {
      const bool there = position <= last;
      size_t from = 0;
      if (there) {
        const KvPlace place = FindPosition(kv, path, position, kv_head);
        from = place.keys / 2 + place.offset +
               static_cast<size_t>(first + lane / 8) * kv.block_size;
      }
#pragma unroll 4
      for (int pair = lane / 8; pair < (pairs + 7) / 8 * 8; pair += 4) {
        const bool inside = there && pair < pairs;
        CopyVector(to + pair * 8,
                   reinterpret_cast<const char*>(words + (inside ? from : 0)),
                   inside);
        from += 4 * static_cast<size_t>(kv.block_size);
      }
      return;
    }
    size_t from[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (position + i > last) break;
      const KvPlace place = FindPosition(kv, path, position + i, kv_head);
      from[i] = place.keys / 2 + place.offset +
                static_cast<size_t>(first) * kv.block_size;
    }
#pragma unroll 1
    for (int pair = lane / 8; pair < (pairs + 7) / 8 * 8; pair += 4) {
      uint32_t word[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (position + i <= last && pair < pairs) {
          word[i] = words[from[i] + static_cast<size_t>(pair) * kv.block_size];
        }
      }
      to[pair * 8] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  // Where a vector of a value is. Positions that differ in bits 3 and 4 are
  // read at the same time.
  __device__ static int ValueAt(int position, int part) {
    return (position * kParts + part) ^ (position >> 3 & 3) << 1;
  }

  // The warp's dimensions of all positions; places are there. What lies past
  // the last position becomes zero: it meets weights of zero.
  __device__ void CopyValues(int begin, int chunk) const {
    if (FirstDim(chunk) >= kv.head_dim) return;
    const int part = lane % kParts;
    const int d = FirstDim(chunk) + 8 * part;
    const ValueColumn column = FindColumn(kv, min(d, kv.head_dim - 1));
    const size_t half = static_cast<size_t>(kv.block_size) * kv.head_dim;
    const int end = min(kAttentionSplit, (last - begin) / 32 * 32 + 32);
    const auto* const elements = static_cast<const uint16_t*>(kv.blocks);
#pragma unroll 4
    for (int p = lane / kParts; p < end; p += 32 / kParts) {
      const bool inside = begin + p <= last && d < kv.head_dim;
      const int2 place = places[p];
      const size_t head =
          static_cast<size_t>(place.x) * kv.num_kv_heads + kv_head;
      const uint16_t* const from = elements + (2 * head + 1) * half +
                                   column.begin +
                                   static_cast<size_t>(place.y) * column.width;
      uint4* const to = values + ValueAt(p, part);
      if (kv.head_dim % 8 == 0) {
        CopyVector(to, reinterpret_cast<const char*>(inside ? from : elements),
                   inside);
        continue;
      }
      const auto* const words = reinterpret_cast<const uint32_t*>(from);
      const int there = inside ? (kv.head_dim - d) / 2 : 0;
      *to = make_uint4(there > 0 ? words[0] : 0, there > 1 ? words[1] : 0,
                       there > 2 ? words[2] : 0, there > 3 ? words[3] : 0);
    }
  }

  // The pair of positions whose values are inputs 2t, 2t + 1 of B (then 8
  // more) for the lanes t of a step.
  __device__ int FirstOf(int step) const {
    return step / 2 * 32 + lane % 4 * 8 + step % 2 * 2;
  }

  // B of a step of 16 positions, for each tile of 8 dimensions: column c of
  // tile j is dimension kParts c + j. Where masked, positions that a query at
  // `limit` does not see are zero.
  template <bool kMasked>
  __device__ void LoadValues(int step, int limit, int window,
                             uint32_t (&b)[kParts][2]) const {
    uint32_t words[4][kParts / 2];
    const int first = FirstOf(step);
    const int word = lane / 4 * (kParts / 2);  // of the warp's dimensions
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = first + i / 2 + i % 2 * 4;
      const auto* const from = reinterpret_cast<const uint32_t*>(
                                   values + ValueAt(position, word / 4)) +
                               word % 4;
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      words[i][0] = two.x;
      words[i][1] = two.y;
#pragma unroll
      for (int k = 0; k < kParts / 2; ++k) {
        if (kMasked && !Sees(position, limit, window)) words[i][k] = 0;
      }
    }
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const uint32_t half = j % 2 == 0 ? 0x5410 : 0x7632;
      b[j][0] = __byte_perm(words[0][j / 2], words[1][j / 2], half);
      b[j][1] = __byte_perm(words[2][j / 2], words[3][j / 2], half);
    }
  }

  // Whether a value of positions first to end - 1 is infinite or NaN.
  __device__ bool AnyNotFinite(int first, int end) const {
    bool found = false;
    for (int i = first * kParts + lane; i < end * kParts; i += 32) {
      found = found || HasNotFinite(values[ValueAt(i / kParts, i % kParts)]);
    }
    return __any_sync(kAllLanes, found);
  }
};

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BF16_BLOCK_CUH_
