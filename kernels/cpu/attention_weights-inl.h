// The first half of attention over one split: the scores of a tile's queries
// and the weights that follow from them; compiled once for each target.

#if defined(KERNELS_CPU_ATTENTION_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_WEIGHTS_INL_H_
#undef KERNELS_CPU_ATTENTION_WEIGHTS_INL_H_
#else
#define KERNELS_CPU_ATTENTION_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

// sums[i] += q[i] times part kPart of the words of the quarters.
template <class Kv, size_t kPart, int kQueries>
HWY_INLINE void AddKeys(const char* key0, const char* key1, const char* key2,
                        const char* key3, const float* q,
                        VF32 (&sums)[kQueries][kVectors]) {
  const VF32 k[kVectors] = {
      Kv::Part(LoadWords(key0), kPart), Kv::Part(LoadWords(key1), kPart),
      Kv::Part(LoadWords(key2), kPart), Kv::Part(LoadWords(key3), kPart)};
  MultiplyAdd(k, q + kPart, kQueryStride, sums);
}

// sums[i] += q[i] times part kPart of a word.
template <class Kv, size_t kPart, int kQueries>
HWY_INLINE void AddKey(VWords words, const float* q, VF32 (&sums)[kQueries]) {
  const VF32 k = Kv::Part(words, kPart);
  HWY_UNROLL(6)
  for (int i = 0; i < kQueries; ++i) {
    const VF32 factor = hn::Set(F32(), q[i * kQueryStride + kPart]);
    sums[i] = hn::MulAdd(k, factor, sums[i]);
  }
}

// Scores of one quarter alone, with the bits of them all: of the last split of
// a short text most would be for nothing.
template <class Kv, int kQueries>
void ScoresOfQuarter(const SplitKv& kv, int quarter, const float* q,
                     float* scores) {
  const F32 df;
  const size_t stride = kv.block_size * sizeof(uint32_t);
  for (size_t p = 0; p < kQuarter; p += FloatLanes()) {
    const char* key = kv.keys[quarter] + p * sizeof(uint32_t);
    VF32 sums[kQueries];
    HWY_UNROLL(6)
    for (int i = 0; i < kQueries; ++i) sums[i] = hn::Zero(df);
    for (size_t d = 0; d < kv.width; d += Kv::kPerWord, key += stride) {
      const VWords words = LoadWords(key);
      AddKey<Kv, 0>(words, q + d, sums);
      if constexpr (Kv::kPerWord >= 2) AddKey<Kv, 1>(words, q + d, sums);
      if constexpr (Kv::kPerWord == 4) {
        AddKey<Kv, 2>(words, q + d, sums);
        AddKey<Kv, 3>(words, q + d, sums);
      }
    }
    float* const to = scores + static_cast<size_t>(quarter) * kQuarter + p;
    HWY_UNROLL(6)
    for (int i = 0; i < kQueries; ++i) {
      hn::StoreU(sums[i], df, to + i * kScoreStride);
    }
  }
}

// scores[i, p] = q[i] . keys[p] for all positions of the split, or for those of
// its first quarters where `quarters` is less than all; for those that lie in
// no block, whatever.
template <class Kv, int kQueries>
void Scores(const SplitKv& kv, int quarters, const float* q, Fetch* fetch,
            float* scores) {
  if (quarters <= kQuarters / 2) {
    for (int quarter = 0; quarter < quarters; ++quarter) {
      ScoresOfQuarter<Kv, kQueries>(kv, quarter, q, scores);
    }
    return;
  }
  const int lanes = static_cast<int>(FloatLanes());
  const size_t stride = kv.block_size * sizeof(uint32_t);
  const Fetch ahead = *fetch;
  size_t ahead_offset = 0;
  for (int p = 0; p < kQuarter; p += lanes) {
    const char* const key0 = kv.keys[0] + p * sizeof(uint32_t);
    const char* const key1 = kv.keys[1] + p * sizeof(uint32_t);
    const char* const key2 = kv.keys[2] + p * sizeof(uint32_t);
    const char* const key3 = kv.keys[3] + p * sizeof(uint32_t);
    VF32 sums[kQueries][kVectors];
    ZeroSums(sums);
    size_t offset = 0;
    for (size_t d = 0; d < kv.width; d += Kv::kPerWord) {
      FetchLines(ahead, ahead_offset);
      ahead_offset += ahead.step;
      const VF32 k[kVectors] = {Kv::Part(LoadWords(key0 + offset), 0),
                                Kv::Part(LoadWords(key1 + offset), 0),
                                Kv::Part(LoadWords(key2 + offset), 0),
                                Kv::Part(LoadWords(key3 + offset), 0)};
      MultiplyAdd(k, q + d, kQueryStride, sums);
      // Each part loads again: registers are short.
      if constexpr (Kv::kPerWord >= 2) {
        AddKeys<Kv, 1>(key0 + offset, key1 + offset, key2 + offset,
                       key3 + offset, q + d, sums);
      }
      if constexpr (Kv::kPerWord == 4) {
        AddKeys<Kv, 2>(key0 + offset, key1 + offset, key2 + offset,
                       key3 + offset, q + d, sums);
        AddKeys<Kv, 3>(key0 + offset, key1 + offset, key2 + offset,
                       key3 + offset, q + d, sums);
      }
      offset += stride;
    }
    StoreSums(sums, kScoreStride, kQuarter, scores + p);
  }
  Advance(ahead_offset, fetch);
}

// scores[i, p] *= scales[p]
template <int kQueries>
void ScaleScores(const char* const (&scales)[kQuarters], float* scores) {
  const F32 df;
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const auto* const from = reinterpret_cast<const float*>(scales[quarter]);
    for (size_t p = 0; p < kQuarter; p += FloatLanes()) {
      const VF32 scale = hn::LoadU(df, from + p);
      for (int i = 0; i < kQueries; ++i) {
        float* const score = scores + i * kScoreStride +
                             static_cast<size_t>(quarter) * kQuarter + p;
        hn::StoreU(hn::Mul(hn::LoadU(df, score), scale), df, score);
      }
    }
  }
}

// 2^x for x <= 0, to about 2 units in the last place; 0 for x < -126; NaN stays
// NaN.
HWY_INLINE VF32 Exp2(VF32 x) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const VF32 n = hn::Round(x);
  const VF32 f = hn::Sub(x, n);
  // Minimax polynomial on [-1/2, 1/2] (coefficients of Cephes exp2f).
  VF32 p = hn::Set(df, 1.535336188319500e-4f);
  p = hn::MulAdd(p, f, hn::Set(df, 1.339887440266574e-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 9.618437357674640e-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 5.550332471162809e-2f));
  p = hn::MulAdd(p, f, hn::Set(df, 2.402264791363012e-1f));
  p = hn::MulAdd(p, f, hn::Set(df, 6.931472028550421e-1f));
  p = hn::MulAdd(p, f, hn::Set(df, 1.0f));
  const auto exponent = hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127));
  const VF32 power = hn::BitCast(df, hn::ShiftLeft<23>(exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -126.0f)), hn::Mul(p, power));
}

// Scores to base 2 become cap * tanh(score / cap).
template <int kQueries>
void CapScores(float cap, float* scores) {
  const F32 df;
  const VF32 by = hn::Set(df, cap);
  for (int i = 0; i < kQueries; ++i, scores += kScoreStride) {
    for (size_t p = 0; p < kSplit; p += FloatLanes()) {
      const VF32 x = hn::Div(hn::LoadU(df, scores + p), by);
      hn::StoreU(hn::Mul(by, Tanh(x)), df, scores + p);
    }
  }
}

// Turns scores into weights 2^(score - maximum), with the running maximum;
// those of positions that a query does not attend to into 0. Quarters after the
// first `quarters`, to which none does, are left out.
template <int kQueries>
void Weigh(int quarters, Fetch* fetch, TileState* s) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t positions = static_cast<size_t>(quarters) * kQuarter;
  const Fetch ahead = *fetch;
  size_t ahead_offset = 0;
  for (int i = 0; i < kQueries; ++i) {
    float* const scores = s->scores + i * kScoreStride;
    const float before = s->maximum[i];
    constexpr float kNothing = -std::numeric_limits<float>::infinity();
    std::fill(scores, scores + s->first[i], kNothing);
    std::fill(scores + s->end[i], scores + positions, kNothing);
    VF32 largest = hn::Set(df, before);
    for (size_t p = 0; p < positions; p += lanes) {
      largest = hn::Max(largest, hn::LoadU(df, scores + p));
    }
    s->maximum[i] = hn::GetLane(hn::MaxOfLanes(df, largest));
    s->rescale[i] = before - s->maximum[i];
  }
  for (size_t i = 0; i < kQueries; i += lanes) {
    hn::StoreU(Exp2(hn::LoadU(df, s->rescale + i)), df, s->rescale + i);
  }
  for (int i = 0; i < kQueries; ++i) {
    if (s->end[i] == 0) {  // it sees nothing here: nothing may change
      s->rescale[i] = 1.0f;
      continue;
    }
    float* const scores = s->scores + i * kScoreStride;
    const VF32 maximum = hn::Set(df, s->maximum[i]);
    VF32 sum = hn::Mul(hn::Load(df, s->normalizer + i * lanes),
                       hn::Set(df, s->rescale[i]));
    for (size_t p = 0; p < positions; p += lanes) {
      FetchLines(ahead, ahead_offset);
      ahead_offset += ahead.step;
      const VF32 weight = Exp2(hn::Sub(hn::LoadU(df, scores + p), maximum));
      hn::StoreU(weight, df, scores + p);
      sum = hn::Add(sum, weight);
    }
    hn::Store(sum, df, s->normalizer + i * lanes);
  }
  Advance(ahead_offset, fetch);
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_ATTENTION_WEIGHTS_INL_H_
