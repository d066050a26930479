// What the vector code of the sampler has in common, compiled once for each
// target.

#if defined(MODEL_LOGIT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MODEL_LOGIT_ROW_INL_H_
#undef MODEL_LOGIT_ROW_INL_H_
#else
#define MODEL_LOGIT_ROW_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "model/logit_row.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::model {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using kernels::HWY_NAMESPACE::F32;
using kernels::HWY_NAMESPACE::FloatLanes;
using kernels::HWY_NAMESPACE::VF32;
using I32 = hn::RebindToSigned<F32>;
using VI32 = hn::Vec<I32>;

// `from`, or where fewer than a group are left, a copy of them with NaN after.
HWY_INLINE const float* Padded(const float* from, int left, float* copy) {
  if (left >= kGroupTokens) return from;
  std::fill(std::copy(from, from + left, copy), copy + kGroupTokens,
            std::numeric_limits<float>::quiet_NaN());
  return copy;
}

// Whole rows come from memory: fetched as far ahead as weights are.
HWY_INLINE void FetchAhead(const float* group) {
  constexpr int kAhead = 2048;  // floats
  for (int line = 0; line < kGroupTokens; line += 16) {
    hwy::Prefetch(group + kAhead + line);
  }
}

// `other` where v is NaN. What hn::Max does with NaN depends on the target.
HWY_INLINE VF32 LargerOf(VF32 v, VF32 other) {
#if HWY_ARCH_X86
  return hn::Max(v, other);
#else
  return hn::IfThenElse(hn::Gt(v, other), v, other);
#endif
}

// The largest lane; no lane is NaN.
HWY_INLINE float LargestLane(VF32 v) {
  const F32 df;
#if HWY_TARGET == HWY_EMU128
  // Its MaxOfLanes (clang builds for CPUs without SIMD) begins with the lowest
  // finite number, which is above -inf.
  if (hn::AllTrue(df, hn::Eq(v, hn::Set(df, -kInfinity)))) return -kInfinity;
#endif
  return hn::GetLane(hn::MaxOfLanes(df, v));
}

// The largest of 64 values, NaN aside.
HWY_INLINE float MaximumOfGroup(const float* values) {
  const F32 df;
  VF32 best0 = hn::Set(df, -kInfinity);
  VF32 best1 = best0;
  const size_t lanes = FloatLanes();
  for (size_t i = 0; i < kGroupTokens; i += 2 * lanes) {
    best0 = LargerOf(hn::LoadU(df, values + i), best0);
    best1 = LargerOf(hn::LoadU(df, values + i + lanes), best1);
  }
  return LargestLane(LargerOf(best0, best1));
}

// Adds up masses, each at most 2^30.
class MassSum {
 public:
#if HWY_TARGET == HWY_SCALAR
  HWY_INLINE void Add(VI32 a, VI32 b) {
    sum_ += int64_t{hn::GetLane(a)} + hn::GetLane(b);
  }
  int64_t Total() const { return sum_; }

 private:
  int64_t sum_ = 0;
#else
  HWY_INLINE MassSum() : sum_(hn::Zero(U64())) {}
  HWY_INLINE void Add(VI32 a, VI32 b) {
    const auto both = hn::BitCast(U64(), hn::Add(a, b));  // at most 2^31
    const auto low = hn::And(both, hn::Set(U64(), 0xFFFFFFFFu));
    sum_ = hn::Add(sum_, hn::Add(low, hn::ShiftRight<32>(both)));
  }
  HWY_INLINE int64_t Total() const {
    return static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(U64(), sum_)));
  }

 private:
  using U64 = hn::ScalableTag<uint64_t>;
  hn::Vec<U64> sum_;
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace nacre::model
HWY_AFTER_NAMESPACE();

#endif  // MODEL_LOGIT_ROW_INL_H_
