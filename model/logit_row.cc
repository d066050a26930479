#include "model/logit_row.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/logit_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>

#include "hwy/highway.h"
#include "model/logit_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::model {
namespace HWY_NAMESPACE {

void FindMaximaImpl(const float* logits, int count, GroupRange groups,
                    float* maxima) {
  HWY_ALIGN float padded[kGroupTokens];
  for (int g = groups.begin; g < groups.end; ++g) {
    const float* from = logits + FirstOfGroup(g);
    FetchAhead(from);
    maxima[g] = MaximumOfGroup(Padded(from, count - g * kGroupTokens, padded));
  }
}

void ScaleMaximaImpl(float temperature, GroupRange groups, float* maxima) {
  for (int g = groups.begin; g < groups.end; ++g) maxima[g] /= temperature;
}

float LargestImpl(const float* values, int count) {
  const F32 df;
  const int lanes = static_cast<int>(FloatLanes());
  VF32 best = hn::Set(df, -kInfinity);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    best = LargerOf(hn::LoadU(df, values + i), best);
  }
  float result = LargestLane(best);
  for (; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

bool IsSoundRowImpl(const float* logits, int count) {
  const F32 df;
  const int lanes = static_cast<int>(FloatLanes());
  const VF32 infinity = hn::Set(df, kInfinity);
  const VF32 least = hn::Set(df, -kInfinity);
  // Unlike the largest value, sums of comparisons keep a NaN.
  auto all_below = hn::Lt(least, infinity);
  auto any_above = hn::Lt(infinity, least);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF32 v = hn::LoadU(df, logits + i);
    all_below = hn::And(all_below, hn::Lt(v, infinity));
    any_above = hn::Or(any_above, hn::Gt(v, least));
  }
  bool is_below = hn::AllTrue(df, all_below);
  bool is_above = !hn::AllFalse(df, any_above);
  for (; i < count; ++i) {
    is_below = is_below && logits[i] < kInfinity;
    is_above = is_above || logits[i] > -kInfinity;
  }
  return is_below && is_above;
}

// Calls visit(first id, 64 logits) for those of the groups whose maximum is at
// least `lowest`, in order, until it returns true.
template <class Visit>
HWY_INLINE void VisitGroups(const LogitRow& row, GroupRange groups,
                            float lowest, const Visit& visit) {
  const F32 df;
  const int lanes = static_cast<int>(FloatLanes());
  const VF32 limit = hn::Set(df, lowest);
  HWY_ALIGN float padded[kGroupTokens];
  for (int first = groups.begin; first < groups.end; first += lanes) {
    const auto large = hn::Ge(hn::LoadU(df, row.maxima + first), limit);
    if (hn::AllFalse(df, large)) continue;
    const int end = std::min(first + lanes, groups.end);
    for (int g = first; g < end; ++g) {
      if (!(row.maxima[g] >= lowest)) continue;
      const int id = g * kGroupTokens;
      if (visit(id, Padded(row.logits + id, row.count - id, padded))) return;
    }
  }
}

int32_t FindScaledImpl(const LogitRow& row, GroupRange groups, float scaled,
                       int n) {
  const F32 df;
  const int lanes = static_cast<int>(FloatLanes());
  const VF32 temperature = hn::Set(df, row.temperature);
  const VF32 wanted = hn::Set(df, scaled);
  int32_t found = -1;
  VisitGroups(row, groups, scaled, [&](int id, const float* logits) HWY_ATTR {
    for (int i = 0; i < kGroupTokens; i += lanes) {
      const VF32 v = hn::Div(hn::LoadU(df, logits + i), temperature);
      const auto equal = hn::Eq(v, wanted);
      const int count = static_cast<int>(hn::CountTrue(df, equal));
      if (count < n) {
        n -= count;
        continue;
      }
      for (int j = i;; ++j) {
        if (logits[j] / row.temperature == scaled && --n == 0) {
          found = id + j;
          return true;
        }
      }
    }
    return false;
  });
  return found;
}

template <bool kIds>
HWY_INLINE int Collect(const LogitRow& row, float lowest, float below,
                       int num_values, float* values, int32_t* ids) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const int lanes = static_cast<int>(FloatLanes());
  const VF32 temperature = hn::Set(df, row.temperature);
  const VF32 first = hn::Set(df, lowest);
  const VF32 last = hn::Set(df, below);
  VisitGroups(
      row, AllGroups(row), lowest, [&](int id, const float* logits) HWY_ATTR {
        for (int i = 0; i < kGroupTokens; i += lanes) {
          const VF32 v = hn::Div(hn::LoadU(df, logits + i), temperature);
          const auto kept = hn::And(hn::Ge(v, first), hn::Lt(v, last));
          // Some CPUs are slow at compressing to memory.
          hn::StoreU(hn::Compress(v, kept), df, values + num_values);
          if (kIds) {
            const auto id_lanes = hn::Iota(di, id + i);
            hn::StoreU(hn::Compress(id_lanes, hn::RebindMask(di, kept)), di,
                       ids + num_values);
          }
          num_values += static_cast<int>(hn::CountTrue(df, kept));
        }
        return false;
      });
  return num_values;
}

int CollectScaledImpl(const LogitRow& row, float lowest, float below,
                      int num_values, float* values, int32_t* ids) {
  return ids == nullptr
             ? Collect<false>(row, lowest, below, num_values, values, ids)
             : Collect<true>(row, lowest, below, num_values, values, ids);
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::model
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::model {

HWY_EXPORT(FindMaximaImpl);
HWY_EXPORT(ScaleMaximaImpl);
HWY_EXPORT(IsSoundRowImpl);
HWY_EXPORT(LargestImpl);
HWY_EXPORT(FindScaledImpl);
HWY_EXPORT(CollectScaledImpl);

void FindMaxima(const float* logits, int count, GroupRange groups,
                float* maxima) {
  HWY_DYNAMIC_DISPATCH(FindMaximaImpl)(logits, count, groups, maxima);
}

void ScaleMaxima(float temperature, GroupRange groups, float* maxima) {
  HWY_DYNAMIC_DISPATCH(ScaleMaximaImpl)(temperature, groups, maxima);
}

bool IsSoundRow(const float* logits, int count) {
  return HWY_DYNAMIC_DISPATCH(IsSoundRowImpl)(logits, count);
}

float Largest(const float* values, int count) {
  return HWY_DYNAMIC_DISPATCH(LargestImpl)(values, count);
}

int32_t FindScaled(const LogitRow& row, GroupRange groups, float scaled,
                   int n) {
  return HWY_DYNAMIC_DISPATCH(FindScaledImpl)(row, groups, scaled, n);
}

int CollectScaled(const LogitRow& row, float lowest, float below,
                  int num_values, float* values, int32_t* ids) {
  return HWY_DYNAMIC_DISPATCH(CollectScaledImpl)(row, lowest, below, num_values,
                                                 values, ids);
}

}  // namespace nacre::model
#endif  // HWY_ONCE
