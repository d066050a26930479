#include "kernels/cpu/grouped_gemm.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/grouped_gemm.cc"
// What AVX3_DL adds is not used here, and 96 unrolled loops of each target take
// long to compile. These CPUs take AVX3's.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_AVX3_DL)
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <cstdint>

#include "common/check.h"
#include "hwy/highway.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

using U32 = hn::RebindToUnsigned<F32>;
using VU32 = hn::Vec<U32>;

// Whether MulSub rounds once.
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
constexpr bool kIsFused = true;
#else
constexpr bool kIsFused = false;
#endif

// Rows of a tile at most, each of which has a register for a sum. Where there
// are 32 registers, those of many rows pay for decoding; else tiles are those
// of decoded weights.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kMaxGroupedRows = kMaxGroupedTileRows;
constexpr bool kDecodesFirst = false;
#else
constexpr int kMaxGroupedRows = 3;
constexpr bool kDecodesFirst = true;
#endif

template <int kLowBits, int kHighBits, bool kOffsets>
struct Kind {
  static constexpr int kLow = kLowBits;
  static constexpr int kHigh = kHighBits;
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kSpan = kChunkInputs * kLow;  // bits of a chunk
};

// To the left if kBits < 0.
template <int kBits>
HWY_INLINE VU32 ShiftedRight(VU32 v) {
  if constexpr (kBits > 0) {
    return hn::ShiftRight<kBits>(v);
  } else if constexpr (kBits < 0) {
    return hn::ShiftLeft<-kBits>(v);
  } else {
    return v;
  }
}

// Of a group and a vector of outputs. An integer of a chunk is not moved to the
// lowest bits: it counts 2^(low bits * its place), and its step as much less,
// which is exact.
struct Steps {
  VF32 by_place[kChunkInputs];
  VF32 offset;
  float zero;

  // Constructors of what has vectors are written out: GCC may compile implicit
  // ones for another CPU than this file's.
  HWY_INLINE Steps() {}
};

HWY_INLINE VF32 LoadHalves(const char* from) {
  const hn::Rebind<hwy::float16_t, F32> dh;
  return hn::PromoteTo(
      F32(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <typename T>
HWY_INLINE VF32 LoadBytes(const char* from) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<T, F32> d8;
  return hn::ConvertTo(
      df, hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const T*>(from))));
}

// Whether the integer's place is at the top of a word: it is moved after all,
// for as a signed number it would be negative.
template <class K>
constexpr bool IsMoved(int place) {
  return K::kLow * (place + 1) == 32;
}

template <class K>
constexpr float PlaceValue(int place) {
  return IsMoved<K>(place) ? 1.0f
                           : static_cast<float>(uint32_t{1} << K::kLow * place);
}

template <class K>
HWY_INLINE Steps LoadSteps(const GroupedPiece& piece, int group,
                           size_t output) {
  const F32 df;
  const WeightGroups& groups = *piece.groups;
  const size_t outputs = kUnitVectors * FloatLanes();
  const char* const halves = piece.block + 2 * output;
  const char* const bytes = piece.block + piece.layout->steps +
                            group * piece.layout->step_bytes + output;
  VF32 step = LoadHalves(halves);
  if (groups.has_steps) step = hn::Mul(step, LoadBytes<int8_t>(bytes));
  Steps result;
  for (int i = 0; i < kChunkInputs; ++i) {
    result.by_place[i] = hn::Mul(step, hn::Set(df, 1.0f / PlaceValue<K>(i)));
  }
  result.zero = static_cast<float>(groups.zero);
  if constexpr (K::kHasOffsets) {
    result.offset = LoadHalves(halves + 2 * outputs);
    if (groups.has_steps) {
      result.offset =
          hn::Mul(result.offset, LoadBytes<uint8_t>(bytes + outputs));
    }
  } else {
    // Exact: it is a power of two.
    result.offset = hn::Mul(step, hn::Set(df, result.zero));
  }
  return result;
}

// The integers of a chunk.
struct Chunk {
  VU32 low;   // the first one is the lowest
  VU32 high;  // the bits above, where they belong

  HWY_INLINE Chunk() {}
};

// The weights of an input.
template <class K, int kPlace>
HWY_INLINE VF32 Weight(const Chunk& chunk, const Steps& steps) {
  const F32 df;
  const U32 du;
  const hn::RebindToSigned<F32> di;
  constexpr int kShift = K::kLow * kPlace;
  VU32 bits;
  if constexpr (IsMoved<K>(kPlace)) {
    bits = hn::ShiftRight<kShift>(chunk.low);
  } else {
    constexpr uint32_t kMask = ((uint32_t{1} << K::kLow) - 1) << kShift;
    bits = hn::And(chunk.low, hn::Set(du, kMask));
  }
  if constexpr (K::kHigh > 0) {
    constexpr uint32_t kMask = ((uint32_t{1} << K::kHigh) - 1)
                               << (kShift + K::kLow);
    bits = hn::Or(bits, hn::And(chunk.high, hn::Set(du, kMask)));
  }
  const VF32 value = hn::ConvertTo(df, hn::BitCast(di, bits));
  const VF32 step = steps.by_place[kPlace];
  if constexpr (K::kHasOffsets || kIsFused) {
    return hn::MulSub(step, value, steps.offset);
  } else {
    const VF32 zero = hn::Set(df, steps.zero * PlaceValue<K>(kPlace));
    return hn::Mul(step, hn::Sub(value, zero));
  }
}

// Where the weights of kVectors vectors of outputs go: to memory, or into the
// sums of kRows rows.
struct StoreWeights {
  static constexpr int kVectors = 1;
  float* out;

  HWY_INLINE void Take(int input, int, VF32 weights) {
    hn::Store(weights, F32(),
              out + size_t{kUnitVectors} * FloatLanes() * input);
  }
};

template <int kRows>
struct AddToSums {
  // So that a sum of few rows does not wait for its last addition.
  static constexpr int kVectors = kRows <= 2 ? 2 : 1;
  const float* x;
  VF32 sums[kVectors][kRows];

  HWY_INLINE explicit AddToSums(const float* inputs) : x(inputs) {}

  HWY_INLINE void Take(int input, int vector, VF32 weights) {
    for (int row = 0; row < kRows; ++row) {
      sums[vector][row] = hn::MulAdd(
          weights, hn::Set(F32(), x[input * kRows + row]), sums[vector][row]);
    }
  }
};

// words: those of the piece and of a vector of outputs
template <class K, int kChunk>
HWY_INLINE Chunk LoadChunk(const uint32_t* words) {
  const U32 du;
  const size_t outputs = kUnitVectors * FloatLanes();
  constexpr int kPerWord = 32 / K::kSpan;
  Chunk chunk;
  chunk.low = ShiftedRight<kChunk % kPerWord * K::kSpan>(
      hn::Load(du, words + kChunk / kPerWord * outputs));
  chunk.high = chunk.low;
  if constexpr (K::kHigh > 0) {
    constexpr int kPerHighWord = 32 / (kChunkInputs * K::kHigh);
    constexpr int kInWord = kChunk % kPerHighWord;
    constexpr int kTogether = K::kLow / K::kHigh;
    constexpr int kShift = kInWord / kTogether * K::kSpan +
                           kInWord % kTogether * K::kHigh - K::kLow;
    chunk.high = ShiftedRight<kShift>(
        hn::Load(du, words + (K::kLow + kChunk / kPerHighWord) * outputs));
  }
  return chunk;
}

template <class K, int kPlace, class Sink>
HWY_INLINE void TakeInput(const Chunk (&chunks)[Sink::kVectors],
                          const Steps (&steps)[Sink::kVectors], int input,
                          Sink& sink) {
  for (int v = 0; v < Sink::kVectors; ++v) {
    sink.Take(input + kPlace, v, Weight<K, kPlace>(chunks[v], steps[v]));
  }
}

// Chunks [kChunk, kEnd) of a piece.
template <class K, int kChunk, int kEnd, class Sink>
HWY_INLINE void ForChunks(const uint32_t* words,
                          const Steps (&steps)[Sink::kVectors], Sink& sink) {
  if constexpr (kChunk < kEnd) {
    Chunk chunks[Sink::kVectors];
    for (int v = 0; v < Sink::kVectors; ++v) {
      chunks[v] = LoadChunk<K, kChunk>(words + v * FloatLanes());
    }
    constexpr int kInput = kChunk * kChunkInputs;
    TakeInput<K, 0>(chunks, steps, kInput, sink);
    TakeInput<K, 1>(chunks, steps, kInput, sink);
    TakeInput<K, 2>(chunks, steps, kInput, sink);
    TakeInput<K, 3>(chunks, steps, kInput, sink);
    ForChunks<K, kChunk + 1, kEnd>(words, steps, sink);
  }
}
static_assert(kChunkInputs == 4);

// All of a piece and some vectors of outputs, the first of which is `output`.
template <class K, class Sink>
HWY_INLINE void ForInputs(const GroupedPiece& piece, size_t output,
                          Sink& sink) {
  constexpr int kChunks = kPieceInputs / kChunkInputs;
  const auto* const words = reinterpret_cast<const uint32_t*>(
                                piece.block + piece.layout->pieces +
                                piece.index * piece.layout->piece_bytes) +
                            output;
  const int groups_each = kPieceInputs / piece.groups->group;  // 1 or 2
  const int group = piece.index * groups_each;
  Steps steps[Sink::kVectors];
  const auto load = [&](int which) {
    for (int v = 0; v < Sink::kVectors; ++v) {
      steps[v] = LoadSteps<K>(piece, which, output + v * FloatLanes());
    }
  };
  load(group);
  ForChunks<K, 0, kChunks / 2>(words, steps, sink);
  if (groups_each > 1) load(group + 1);
  ForChunks<K, kChunks / 2, kChunks>(words, steps, sink);
}

template <class K>
void Decode(const GroupedPiece& piece, float* out) {
  for (int i = 0; i < kUnitVectors; ++i) {
    const size_t output = i * FloatLanes();
    StoreWeights sink = {out + output};
    ForInputs<K>(piece, output, sink);
  }
}

template <class K, int kRows>
void Add(const GroupedPiece& piece, const float* x, float* sums) {
  using Sink = AddToSums<kRows>;
  const F32 df;
  const size_t lanes = FloatLanes();
  for (int i = 0; i < kUnitVectors;
       i += Sink::kVectors, sums += Sink::kVectors * lanes) {
    Sink sink(x);
    for (int v = 0; v < Sink::kVectors; ++v) {
      for (int row = 0; row < kRows; ++row) {
        sink.sums[v][row] =
            hn::Load(df, sums + (row * kUnitVectors + v) * lanes);
      }
    }
    ForInputs<K>(piece, i * lanes, sink);
    for (int v = 0; v < Sink::kVectors; ++v) {
      for (int row = 0; row < kRows; ++row) {
        hn::Store(sink.sums[v][row], df,
                  sums + (row * kUnitVectors + v) * lanes);
      }
    }
  }
}

// Of tiles of at most so many rows.
template <class K, int kRows>
constexpr auto AddOf() {
  return Add<K, std::min(kRows, kMaxGroupedRows)>;
}

template <class K>
GroupedKernels KernelsOf() {
  static constexpr decltype(&Add<K, 1>) kAdd[kMaxGroupedTileRows] = {
      AddOf<K, 1>(), AddOf<K, 2>(),  AddOf<K, 3>(),  AddOf<K, 4>(),
      AddOf<K, 5>(), AddOf<K, 6>(),  AddOf<K, 7>(),  AddOf<K, 8>(),
      AddOf<K, 9>(), AddOf<K, 10>(), AddOf<K, 11>(), AddOf<K, 12>()};
  return {kMaxGroupedRows, kDecodesFirst ? Decode<K> : nullptr, kAdd};
}

GroupedKernels FindGroupedKernels(const WeightGroups& groups) {
  struct Known {
    int low_bits;
    int high_bits;
    bool has_offsets;
    GroupedKernels (*kernels)();
  };
  static constexpr Known kKnown[] = {
      {2, 0, true, KernelsOf<Kind<2, 0, true>>},
      {2, 1, false, KernelsOf<Kind<2, 1, false>>},
      {4, 0, false, KernelsOf<Kind<4, 0, false>>},
      {4, 0, true, KernelsOf<Kind<4, 0, true>>},
      {4, 1, false, KernelsOf<Kind<4, 1, false>>},
      {4, 1, true, KernelsOf<Kind<4, 1, true>>},
      {4, 2, false, KernelsOf<Kind<4, 2, false>>},
      {8, 0, false, KernelsOf<Kind<8, 0, false>>},
  };
  for (const Known& known : kKnown) {
    if (known.low_bits == groups.low_bits &&
        known.high_bits == groups.high_bits &&
        known.has_offsets == groups.has_offsets) {
      return known.kernels();
    }
  }
  NACRE_CHECK(false, "weights in groups that no code decodes");
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(FindGroupedKernels);

GroupedKernels ChooseGroupedKernels(const WeightGroups& groups) {
  return HWY_DYNAMIC_DISPATCH(FindGroupedKernels)(groups);
}

GroupedLayout::GroupedLayout(const WeightGroups& groups, size_t unit_outputs) {
  const size_t kinds = groups.has_offsets ? 2 : 1;
  step_bytes = groups.has_steps ? kinds * unit_outputs : 0;
  steps = kinds * sizeof(uint16_t) * unit_outputs;
  pieces = steps + groups.block / groups.group * step_bytes;
  piece_bytes = sizeof(uint32_t) * unit_outputs *
                static_cast<size_t>(groups.low_bits + groups.high_bits);
  block_bytes = pieces + groups.block / kPieceInputs * piece_bytes;
}

void PackPiece(const WeightGroups& groups, const uint8_t* integers,
               uint32_t* words) {
  const int low = groups.low_bits;
  const int high = groups.high_bits;
  std::fill_n(words, low + high, 0u);
  const uint32_t mask = (uint32_t{1} << low) - 1;
  for (int i = 0; i < kPieceInputs; ++i) {
    words[i * low / 32] |= (integers[i] & mask) << (i * low % 32);
    if (high == 0) continue;
    const int per_word = 32 / (kChunkInputs * high);
    const int chunk = i / kChunkInputs;
    const int in_word = chunk % per_word;
    const int together = low / high;  // chunks whose bits alternate
    const int at = in_word / together * kChunkInputs * low +
                   i % kChunkInputs * low + in_word % together * high;
    words[low + chunk / per_word] |= uint32_t{integers[i]} >> low << at;
  }
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
