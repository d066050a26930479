#include "model/probability_mass.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/probability_mass.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <cmath>

#include "common/deterministic_math.h"
#include "hwy/highway.h"
#include "model/logit_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::model {
namespace HWY_NAMESPACE {

// e^x * 2^kExponent for x <= 0 with the bits of DeterministicExp, the exponent
// apart. What is below -80 counts as that, NaN too: with it as well as without
// it a mass is 0.
template <int kExponent>
HWY_INLINE VF32 Exponential(VF32 x) {
  const F32 df;
  x = LargerOf(x, hn::Set(df, -80.0f));
#if HWY_NATIVE_FMA
  // Adding and subtracting 1.5 * 2^23 is what nearbyint does; the sum has the
  // integer in its lowest bits.
  const I32 di;
  const VF32 magic = hn::Set(df, 12582912.0f);
  const VF32 sum = hn::Add(hn::Mul(x, hn::Set(df, 1.44269504f)), magic);
  const VF32 n = hn::Sub(sum, magic);
  const VF32 p = kernels::HWY_NAMESPACE::ExpWithout(n, x);
  // A power of two is added to the exponent.
  const VI32 power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, sum)),
                             hn::Set(di, kExponent << 23));
  return hn::BitCast(df, hn::Add(hn::BitCast(di, p), power));
#else
  // As the scalar code does it: a fused multiply-add is no instruction here.
  HWY_ALIGN float lanes[hn::MaxLanes(F32())];
  hn::Store(x, df, lanes);
  for (float& lane : lanes) {
    lane = std::ldexp(DeterministicExp(lane), kExponent);
  }
  return hn::Load(df, lanes);
#endif
}

constexpr int kMassExponent = 30;
static_assert(kMassOne == 1 << kMassExponent);

template <bool kDivide>
HWY_INLINE VF32 Difference(const float* values, VF32 temperature, VF32 best) {
  VF32 v = hn::LoadU(F32(), values);
  if (kDivide) v = hn::Div(v, temperature);
  return hn::Sub(v, best);
}

HWY_INLINE VI32 Mass(VF32 difference) {
  return hn::ConvertTo(I32(), Exponential<kMassExponent>(difference));
}

template <bool kDivide>
int64_t TotalMassOf(const LogitRow& row, float best) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const VF32 temperature = hn::Set(df, row.temperature);
  const VF32 best_lanes = hn::Set(df, best);
  HWY_ALIGN float padded[kGroupTokens];
  MassSum sum;
  const int groups = NumGroups(row.count);
  for (int g = 0; g < groups; ++g) {
    if (!(row.maxima[g] - best >= kNegligibleDifference)) continue;
    const int id = g * kGroupTokens;
    const float* from = Padded(row.logits + id, row.count - id, padded);
    for (size_t i = 0; i < kGroupTokens; i += 2 * lanes) {
      sum.Add(
          Mass(Difference<kDivide>(from + i, temperature, best_lanes)),
          Mass(Difference<kDivide>(from + i + lanes, temperature, best_lanes)));
    }
  }
  return sum.Total();
}

int64_t TotalMassImpl(const LogitRow& row, float best) {
  return row.temperature == 1.0f ? TotalMassOf<false>(row, best)
                                 : TotalMassOf<true>(row, best);
}

int64_t MassesImpl(const float* values, int count, float best,
                   int32_t* masses) {
  const I32 di;
  const VF32 best_lanes = hn::Set(F32(), best);
  HWY_ALIGN float padded[kGroupTokens];
  MassSum sum;
  for (int g = 0; g < count; g += kGroupTokens) {
    const float* from = Padded(values + g, count - g, padded);
    for (size_t i = 0; i < kGroupTokens; i += FloatLanes()) {
      const VI32 mass =
          Mass(Difference<false>(from + i, best_lanes, best_lanes));
      hn::StoreU(mass, di, masses + g + i);
      sum.Add(mass, hn::Zero(di));
    }
  }
  return sum.Total();
}

// 2^x for x <= 0, with a relative error below 4e-7, and 2^-100 for less. The
// power of two of the fraction is a polynomial of degree 5, interpolated at
// Chebyshev's nodes.
HWY_INLINE VF32 EstimatePower(VF32 x) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  x = LargerOf(x, hn::Set(df, -100.0f));
  const VF32 magic = hn::Set(df, 12582912.0f);  // as above
  const VF32 sum = hn::Add(x, magic);
  const VF32 f = hn::Sub(x, hn::Sub(sum, magic));
  VF32 p = hn::Set(df, 0.00134004327f);
  p = hn::MulAdd(p, f, hn::Set(df, 0.00967603736f));
  p = hn::MulAdd(p, f, hn::Set(df, 0.0555032715f));
  p = hn::MulAdd(p, f, hn::Set(df, 0.240221068f));
  p = hn::MulAdd(p, f, hn::Set(df, 0.693147182f));
  p = hn::MulAdd(p, f, hn::Set(df, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::BitCast(di, sum));
  return hn::BitCast(df, hn::Add(hn::BitCast(di, p), power));
}

double FindMaximaAndEstimateSumImpl(const float* logits, int count,
                                    float temperature, float* maxima) {
  const F32 df;
  const size_t lanes = FloatLanes();
  // Groups whose logits are still in the level-1 cache when their maximum is
  // known. No lane adds up more than 128 of their numbers in float32.
  const int together = lanes >= 4 ? 16 : 4;
  HWY_ALIGN float padded[kGroupTokens];
  const VF32 factor = hn::Set(df, 1.44269504f / temperature);
  const int groups = NumGroups(count);
  float reference = -kInfinity;  // the largest logit so far
  double sum = 0;                // in terms of it
  for (int first = 0; first < groups; first += together) {
    const int end = std::min(first + together, groups);
    float largest = reference;
    for (int g = first; g < end; ++g) {
      const float* from = logits + FirstOfGroup(g);
      FetchAhead(from);
      maxima[g] =
          MaximumOfGroup(Padded(from, count - g * kGroupTokens, padded));
      largest = std::max(largest, maxima[g]);
    }
    if (!std::isfinite(largest)) continue;
    if (largest > reference) {
      sum *= std::exp((double{reference} - largest) / temperature);
      reference = largest;
    }
    const VF32 zero = hn::Set(df, reference);
    VF32 sum0 = hn::Zero(df);
    VF32 sum1 = sum0;
    for (int g = first; g < end; ++g) {
      const float* from =
          Padded(logits + FirstOfGroup(g), count - g * kGroupTokens, padded);
      for (size_t i = 0; i < kGroupTokens; i += 2 * lanes) {
        const VF32 x0 = hn::Sub(hn::LoadU(df, from + i), zero);
        const VF32 x1 = hn::Sub(hn::LoadU(df, from + i + lanes), zero);
        sum0 = hn::Add(sum0, EstimatePower(hn::Mul(x0, factor)));
        sum1 = hn::Add(sum1, EstimatePower(hn::Mul(x1, factor)));
      }
    }
    sum += static_cast<double>(
        hn::GetLane(hn::SumOfLanes(df, hn::Add(sum0, sum1))));
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::model
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::model {

HWY_EXPORT(TotalMassImpl);
HWY_EXPORT(MassesImpl);
HWY_EXPORT(FindMaximaAndEstimateSumImpl);

int64_t TotalMass(const LogitRow& row, float best) {
  return HWY_DYNAMIC_DISPATCH(TotalMassImpl)(row, best);
}

int64_t Masses(const float* values, int count, float best, int32_t* masses) {
  return HWY_DYNAMIC_DISPATCH(MassesImpl)(values, count, best, masses);
}

double FindMaximaAndEstimateSum(const float* logits, int count,
                                float temperature, float* maxima) {
  return HWY_DYNAMIC_DISPATCH(FindMaximaAndEstimateSumImpl)(
      logits, count, temperature, maxima);
}

}  // namespace nacre::model
#endif  // HWY_ONCE
