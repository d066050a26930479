// What the loops of attention over one split of positions share: the state of a
// tile, keys and values as vectors, sums in registers, and fetching; compiled
// once for each target.
//
// What is read next is fetched while these loops compute, a little each step,
// as in kernels/cpu/gemm_loop.h, and into the level-2 cache. A core keeps many
// more lines on their way to there than to the level-1 cache.

#if defined(KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

constexpr int kSplit = 64;    // positions
constexpr int kQuarters = 4;  // of a split, each in one block
constexpr int kQuarter = kSplit / kQuarters;
constexpr int kVectors = 4;
static_assert(kQuarter % hn::MaxLanes(F32()) == 0);
static_assert(kKvGroup % (kVectors * hn::MaxLanes(F32())) == 0);

// Four accumulators a query must leave registers for four vectors and a factor.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileQueries = 6;
#else
constexpr int kTileQueries = 2;
#endif
static_assert(kTileQueries <= kMaxAttentionTile);

// Rows of scores are so far apart that equal columns of neighbours lie at
// different offsets of a cache line.
constexpr size_t kScoreStride = kSplit + 4;

// The same for queries.
constexpr size_t kQueryStride = kMaxHeadDim + 4;

// What a tile has computed so far. Scores are logarithms to base 2.
struct TileState {
  // [queries, head_dim], scaled
  HWY_ALIGN float q[kTileQueries * kQueryStride];
  // [chunks, queries, kVectors of the chunk], in the order of Place
  HWY_ALIGN float sums[kTileQueries * kMaxHeadDim];
  HWY_ALIGN float scores[kTileQueries * kScoreStride];  // of one split
  HWY_ALIGN float normalizer[kTileQueries * hn::MaxLanes(F32())];
  HWY_ALIGN float maximum[hn::MaxLanes(F32()) + kTileQueries];
  HWY_ALIGN float rescale[hn::MaxLanes(F32()) + kTileQueries];
  // The positions of the split that a query attends to, [first, end); end is 0
  // where there are none.
  int first[kTileQueries];
  int end[kTileQueries];
};

// Keys and values are read as words of 32 bits: one float32, two bf16, or four
// integers, whose scales multiply scores and weights.
using Words = hn::RebindToUnsigned<F32>;
using VWords = hn::Vec<Words>;

HWY_INLINE VWords LoadWords(const char* from) {
  return hn::LoadU(Words(), reinterpret_cast<const uint32_t*>(from));
}
HWY_INLINE VWords LoadSomeWords(const char* from, size_t count) {
  if (count == FloatLanes()) return LoadWords(from);
  return hn::BitCast(Words(),
                     LoadTail(reinterpret_cast<const float*>(from), count));
}

struct F32Kv {
  static constexpr size_t kPerWord = 1;
  static constexpr bool kHasScales = false;
  // Part `part` < kPerWord of each word.
  static HWY_INLINE VF32 Part(VWords words, size_t /*part*/) {
    return hn::BitCast(F32(), words);
  }
};

struct BF16Kv {
  static constexpr size_t kPerWord = 2;
  static constexpr bool kHasScales = false;
  static HWY_INLINE VF32 Part(VWords words, size_t part) {
    return hn::BitCast(
        F32(), part == 0 ? hn::ShiftLeft<16>(words)
                         : hn::And(words, hn::Set(Words(), 0xFFFF0000u)));
  }
};

struct Int8Kv {
  static constexpr size_t kPerWord = 4;
  static constexpr bool kHasScales = true;
  static HWY_INLINE VF32 Part(VWords words, size_t part) {
    const hn::RebindToSigned<F32> di;
    const auto shifted = part == 0   ? hn::ShiftLeft<24>(words)
                         : part == 1 ? hn::ShiftLeft<16>(words)
                         : part == 2 ? hn::ShiftLeft<8>(words)
                                     : words;
    return hn::ConvertTo(F32(), hn::ShiftRight<24>(hn::BitCast(di, shifted)));
  }
};

// Where element d lies in TileState::sums: lanes of a vector are the parts of
// the words of one load.
template <class Kv>
HWY_INLINE size_t Place(size_t d) {
  const size_t load = FloatLanes() * Kv::kPerWord;
  return d / load * load + d % Kv::kPerWord * FloatLanes() +
         d % load / Kv::kPerWord;
}

// What to fetch meanwhile: in each step one line at each of these, `step` bytes
// further than in the step before.
struct Fetch {
  const char* runs[kQuarters];
  size_t step;
};

HWY_INLINE void FetchLines(const Fetch& fetch, size_t offset) {
  constexpr int kLevel2 = 2;
  __builtin_prefetch(fetch.runs[0] + offset, 0, kLevel2);
  __builtin_prefetch(fetch.runs[1] + offset, 0, kLevel2);
  __builtin_prefetch(fetch.runs[2] + offset, 0, kLevel2);
  __builtin_prefetch(fetch.runs[3] + offset, 0, kLevel2);
}

HWY_INLINE void Advance(size_t offset, Fetch* fetch) {
  for (const char*& run : fetch->runs) run += offset;
}

// sums[i] += factors[i * stride] * v
template <int kQueries>
HWY_INLINE void MultiplyAdd(const VF32 (&v)[kVectors], const float* factors,
                            size_t stride, VF32 (&sums)[kQueries][kVectors]) {
  for (int i = 0; i < kQueries; ++i) {
    const VF32 factor = hn::Set(F32(), factors[i * stride]);
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = hn::MulAdd(v[j], factor, sums[i][j]);
    }
  }
}

// These walk the sums by recursion: a loop would keep them in memory.
template <int kRow = 0, int kQueries>
HWY_INLINE void ZeroSums(VF32 (&sums)[kQueries][kVectors]) {
  if constexpr (kRow < kQueries) {
    const VF32 zero = hn::Zero(F32());
    sums[kRow][0] = zero;
    sums[kRow][1] = zero;
    sums[kRow][2] = zero;
    sums[kRow][3] = zero;
    ZeroSums<kRow + 1>(sums);
  }
}

// Of one chunk, times factors[i].
template <int kRow = 0, int kQueries>
HWY_INLINE void LoadSums(const float* from, const float* factors,
                         VF32 (&sums)[kQueries][kVectors]) {
  if constexpr (kRow < kQueries) {
    const F32 df;
    const size_t lanes = FloatLanes();
    const VF32 factor = hn::Set(df, factors[kRow]);
    sums[kRow][0] = hn::Mul(hn::Load(df, from), factor);
    sums[kRow][1] = hn::Mul(hn::Load(df, from + lanes), factor);
    sums[kRow][2] = hn::Mul(hn::Load(df, from + 2 * lanes), factor);
    sums[kRow][3] = hn::Mul(hn::Load(df, from + 3 * lanes), factor);
    LoadSums<kRow + 1>(from + kVectors * lanes, factors, sums);
  }
}

template <int kRow = 0, int kQueries>
HWY_INLINE void StoreSums(const VF32 (&sums)[kQueries][kVectors],
                          size_t row_stride, size_t vector_stride, float* to) {
  if constexpr (kRow < kQueries) {
    const F32 df;
    hn::StoreU(sums[kRow][0], df, to);
    hn::StoreU(sums[kRow][1], df, to + vector_stride);
    hn::StoreU(sums[kRow][2], df, to + 2 * vector_stride);
    hn::StoreU(sums[kRow][3], df, to + 3 * vector_stride);
    StoreSums<kRow + 1>(sums, row_stride, vector_stride, to + row_stride);
  }
}
static_assert(kVectors == 4);

// What one KV head has in a split.
struct SplitKv {
  const char* keys[kQuarters];    // word 0 of the quarters' first positions
  const char* values[kQuarters];  // of the blocks
  // Scales of the quarters' first positions, where there are scales.
  const char* key_scales[kQuarters];
  const char* value_scales[kQuarters];
  int in_block[kQuarters];  // of the quarters' first positions
  size_t block_size;
  size_t width;  // head_dim, with what fills the last word
};

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_ATTENTION_TILE_INL_H_
