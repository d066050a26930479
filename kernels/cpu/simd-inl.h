// Pieces of the SIMD kernels, compiled once for each target: sums in a fixed
// order, tails, and e^x.
//
// The bits of a result may depend on the target (more lanes, another order; the
// numerics id names it) but on nothing else.

#if defined(KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SIMD_INL_H_
#undef KERNELS_CPU_SIMD_INL_H_
#else
#define KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;

// A whole number on every target enabled here.
HWY_INLINE size_t FloatLanes() { return hn::Lanes(F32()); }

// Loads `count` < FloatLanes() floats, zeros after them, and never reads past
// them.
HWY_INLINE VF32 LoadTail(const float* from, size_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(F32())] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(F32(), lanes);
}

HWY_INLINE void StoreTail(VF32 value, size_t count, float* to) {
  HWY_ALIGN float lanes[hn::MaxLanes(F32())];
  hn::Store(value, F32(), lanes);
  std::memcpy(to, lanes, count * sizeof(float));
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums4(VF32 a, VF32 b, VF32 c, VF32 d, float* sums) {
  sums[0] = hn::GetLane(a);
  sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c);
  sums[3] = hn::GetLane(d);
}
#else
using F32x4 = hn::CappedTag<float, 4>;

// Adds the 128-bit blocks of `v`, halves first.
HWY_INLINE hn::Vec<F32x4> AddBlocks(VF32 v) {
#if HWY_TARGET <= HWY_AVX3
  const hn::Half<F32> half;
  const auto pair = hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
  return hn::Add(hn::LowerHalf(F32x4(), pair), hn::UpperHalf(F32x4(), pair));
#elif HWY_TARGET == HWY_AVX2
  return hn::Add(hn::LowerHalf(F32x4(), v), hn::UpperHalf(F32x4(), v));
#else
  return v;
#endif
}

// The sums of the lanes of a, b, c and d, each in the same order: in a block
// (lane 0 + lane 2) + (lane 1 + lane 3), then across blocks.        sums [4]
HWY_INLINE void StoreSums4(VF32 a, VF32 b, VF32 c, VF32 d, float* sums) {
  const F32 df;
  const hn::RepartitionToWide<F32> dw;
  const VF32 ab =
      hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF32 cd =
      hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab_wide = hn::BitCast(dw, ab);
  const auto cd_wide = hn::BitCast(dw, cd);
  const VF32 blocks =
      hn::Add(hn::BitCast(df, hn::InterleaveLower(dw, ab_wide, cd_wide)),
              hn::BitCast(df, hn::InterleaveUpper(dw, ab_wide, cd_wide)));
  hn::StoreU(AddBlocks(blocks), F32x4(), sums);
}
#endif

HWY_INLINE float SumLanes(VF32 v) {
  float sums[4];
  StoreSums4(v, v, v, v, sums);
  return sums[0];
}

// e^(x - n ln2) where that lies in [-ln2/2, ln2/2]: ln2 in two parts, then a
// minimax polynomial (coefficients of Cephes expf). The steps of
// DeterministicExp (common/deterministic_math.cc).
HWY_INLINE VF32 ExpWithout(VF32 n, VF32 x) {
  const F32 df;
  VF32 r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  VF32 p = hn::Set(df, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(df, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(df, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(df, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(df, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(df, 1.0f));
  return p;
}

// e^x to about 2 units in the last place; 0 for x < -87, e^88 for x > 88; NaN
// stays NaN.
HWY_INLINE VF32 Exp(VF32 x) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  // Min returns its second operand when one is NaN.
  const VF32 clamped = hn::Min(hn::Set(df, 88.0f), x);
  const VF32 n = hn::Round(hn::Mul(clamped, hn::Set(df, 1.44269504f)));
  const VF32 p = ExpWithout(n, clamped);
  const auto exponent = hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127));
  const VF32 power = hn::BitCast(df, hn::ShiftLeft<23>(exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -87.0f)), hn::Mul(p, power));
}

// tanh x to about 2^-23, not of itself; NaN stays NaN.
HWY_INLINE VF32 Tanh(VF32 x) {
  const F32 df;
  const VF32 one = hn::Set(df, 1.0f);
  const VF32 two = hn::Set(df, 2.0f);
  return hn::Sub(one, hn::Div(two, hn::Add(Exp(hn::Add(x, x)), one)));
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_SIMD_INL_H_
