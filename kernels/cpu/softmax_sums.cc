#include "kernels/cpu/softmax_sums.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE VF32 LargerOf(VF32 value, VF32 best) {
  return hn::IfThenElse(hn::Gt(value, best), value, best);  // NaN is not larger
}

float Largest(const float* values, size_t count) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const VF32 lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
  VF32 best0 = lowest;
  VF32 best1 = lowest;
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    best0 = LargerOf(hn::LoadU(df, values + i), best0);
    best1 = LargerOf(hn::LoadU(df, values + i + lanes), best1);
  }
  HWY_ALIGN float each[hn::MaxLanes(F32())];
  hn::Store(LargerOf(best0, best1), df, each);
  float best = *std::max_element(each, each + lanes);
  for (; i < count; ++i) best = values[i] > best ? values[i] : best;
  return best;
}

HWY_INLINE void AddRow(VF32 value, VF32 best, VF32* total, VF32* weighted) {
  const F32 df;
  const VF32 difference = hn::Sub(value, best);
  const auto counts = hn::Ge(difference, hn::Set(df, -87.0f));  // NaN does not
  const VF32 safe = hn::IfThenElseZero(counts, difference);
  const VF32 power = hn::IfThenElseZero(counts, Exp(safe));
  *total = hn::Add(*total, power);
  *weighted = hn::MulAdd(power, safe, *weighted);
}

SoftmaxSums SumRow(const float* values, size_t count) {
  const F32 df;
  const size_t lanes = FloatLanes();
  SoftmaxSums sums;
  sums.best = Largest(values, count);
  if (!std::isfinite(sums.best)) return sums;
  const VF32 best = hn::Set(df, sums.best);
  // Sums of a chunk stay small enough for floats; those of chunks are doubles.
  constexpr size_t kChunk = 4096;
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t end = std::min(count, begin + kChunk);
    VF32 total = hn::Zero(df);
    VF32 weighted = hn::Zero(df);
    size_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      AddRow(hn::LoadU(df, values + i), best, &total, &weighted);
    }
    if (i < end) {
      HWY_ALIGN float rest[hn::MaxLanes(F32())];
      std::fill(rest, rest + lanes, -std::numeric_limits<float>::infinity());
      std::copy(values + i, values + end, rest);
      AddRow(hn::Load(df, rest), best, &total, &weighted);
    }
    sums.total += SumLanes(total);
    sums.weighted += SumLanes(weighted);
  }
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(SumRow);

SoftmaxSums ComputeSoftmaxSums(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumRow)(values, count);
}

SoftmaxSums ReferenceSoftmaxSums(const float* values, size_t count) {
  SoftmaxSums sums;
  sums.best = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < count; ++i) {
    if (values[i] > sums.best) sums.best = values[i];
  }
  if (!std::isfinite(sums.best)) return sums;
  for (size_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(values[i]) - sums.best;
    if (!(difference >= -700.0)) continue;  // NaN and what is 0 in double
    const double power = std::exp(difference);
    sums.total += power;
    sums.weighted += power * difference;
  }
  return sums;
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
