// The second half of attention over one split: values times weights, summed;
// compiled once for each target.

#if defined(KERNELS_CPU_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_VALUES_INL_H_
#undef KERNELS_CPU_ATTENTION_VALUES_INL_H_
#else
#define KERNELS_CPU_ATTENTION_VALUES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

// The words of a position's value from `from` on: `left` of them, or more than
// these vectors take when kWhole.
template <class Kv, bool kWhole>
HWY_INLINE void LoadValues(const char* from, size_t left, VF32 (&v)[kVectors]) {
  const size_t lanes = FloatLanes();
  for (size_t load = 0; load < kVectors / Kv::kPerWord; ++load) {
    const char* const place = from + load * lanes * sizeof(uint32_t);
    VWords words;
    if constexpr (kWhole) {
      words = LoadWords(place);
    } else {
      words = left > load * lanes
                  ? LoadSomeWords(place, std::min(lanes, left - load * lanes))
                  : hn::Zero(Words());
    }
    for (size_t part = 0; part < Kv::kPerWord; ++part) {
      v[load * Kv::kPerWord + part] = Kv::Part(words, part);
    }
  }
}

// Some dimensions of the values of a split, as many as four vectors hold.
struct ValueChunk {
  const char* quarters[kQuarters];  // of the quarters' first positions
  size_t stride;                    // bytes from position to position
  size_t words;                     // of a position, when not whole
};

// sums[i] = sums[i] * rescale[i] + weights[i, p] * values[p], summed over the
// positions that a query attends to. The quarters take turns: 0, 16, 32, 48, 1,
// 17 and so on, so that memory is read as several streams. kAll: every query
// attends to the whole split.
template <class Kv, int kQueries, bool kWhole, bool kAll>
void AddChunk(const ValueChunk& chunk, const TileState& s, Fetch* fetch,
              float* sums) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const Fetch ahead = *fetch;
  size_t ahead_offset = 0;
  VF32 totals[kQueries][kVectors];
  LoadSums(sums, s.rescale, totals);
  const int last = *std::max_element(s.end, s.end + kQueries);
  size_t offset = 0;
  for (int p = 0; p < kQuarter; ++p, offset += chunk.stride) {
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      const int position = quarter * kQuarter + p;
      FetchLines(ahead, ahead_offset);
      ahead_offset += ahead.step;
      VF32 v[kVectors];
      if constexpr (kAll) {
        LoadValues<Kv, kWhole>(chunk.quarters[quarter] + offset, chunk.words,
                               v);
        MultiplyAdd(v, s.scores + position, kScoreStride, totals);
      } else {
        if (position >= last) break;
        LoadValues<Kv, kWhole>(chunk.quarters[quarter] + offset, chunk.words,
                               v);
        // What a query does not attend to never enters its sums, were it times
        // 0: it may be NaN.
        for (int i = 0; i < kQueries; ++i) {
          if (position < s.first[i] || position >= s.end[i]) continue;
          const VF32 weight =
              hn::Set(df, s.scores[i * kScoreStride + position]);
          for (int j = 0; j < kVectors; ++j) {
            totals[i][j] = hn::MulAdd(v[j], weight, totals[i][j]);
          }
        }
      }
    }
  }
  StoreSums(totals, kVectors * lanes, lanes, sums);
  Advance(ahead_offset, fetch);
}

template <class Kv, int kQueries>
void AddValues(const SplitKv& kv, Fetch fetch, TileState* s) {
  const size_t lanes = FloatLanes();
  const size_t chunk_dims = kVectors * lanes;
  constexpr size_t kElement = sizeof(uint32_t) / Kv::kPerWord;
  const bool all = *std::min_element(s->end, s->end + kQueries) == kSplit &&
                   *std::max_element(s->first, s->first + kQueries) == 0;
  float* sums = s->sums;
  for (size_t d = 0; d < kv.width; d += chunk_dims) {
    const size_t group = d / kKvGroup * kKvGroup;
    const size_t width = std::min<size_t>(kKvGroup, kv.width - group);
    ValueChunk chunk;
    chunk.stride = width * kElement;
    chunk.words = (group + width - d) / Kv::kPerWord;
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      chunk.quarters[quarter] =
          kv.values[quarter] + kv.in_block[quarter] * chunk.stride +
          (group * kv.block_size + (d - group)) * kElement;
    }
    const bool whole = chunk.words * Kv::kPerWord >= chunk_dims;
    const auto add = whole ? all ? AddChunk<Kv, kQueries, true, true>
                                 : AddChunk<Kv, kQueries, true, false>
                     : all ? AddChunk<Kv, kQueries, false, true>
                           : AddChunk<Kv, kQueries, false, false>;
    add(chunk, *s, &fetch, sums);
    sums += kQueries * chunk_dims;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_ATTENTION_VALUES_INL_H_
