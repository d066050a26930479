#include "kernels/cpu/quantized_gemm.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantized_gemm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_loop.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/dtype.h"
#include "kernels/quantization.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

constexpr int kOutputs = QuantizedCells::kUnitOutputs;

// The largest magnitude of some values; false if one is not finite.
HWY_INLINE bool FindLargest(const float* values, size_t count, float* largest) {
  const F32 df;
  VF32 largest_lanes = hn::Zero(df);
  VF32 not_finite = hn::Zero(df);  // 0, or NaN once a value is not finite
  for (size_t i = 0; i < count; i += FloatLanes()) {
    const VF32 v = hn::LoadU(df, values + i);
    largest_lanes = hn::Max(largest_lanes, hn::Abs(v));
    not_finite = hn::MulAdd(v, hn::Zero(df), not_finite);
  }
  *largest = hn::GetLane(hn::MaxOfLanes(df, largest_lanes));
  return SumLanes(not_finite) == 0;
}

float QuantizeGroup(const float* values, int count, int8_t* out) {
  const F32 df;
  const hn::Rebind<int8_t, F32> d8;
  const size_t lanes = FloatLanes();
  const size_t size = static_cast<size_t>(count);
  float largest;
  const bool is_finite = FindLargest(values, size, &largest);
  const bool is_zero = !is_finite || largest < kSmallestActivation;
  const VF32 inverse = hn::Set(df, is_zero ? 0.0f : 127.0f / largest);
  for (size_t i = 0; i < size; i += lanes) {
    const VF32 v = is_zero ? hn::Zero(df) : hn::LoadU(df, values + i);
    const auto q = hn::NearestInt(hn::Mul(v, inverse));
    hn::StoreU(hn::DemoteTo(d8, q), d8, out + i);
  }
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  return is_zero ? 0.0f : largest / 127.0f;
}

// Quotients in double, as in the definition.
template <class Cells>
float QuantizeWeightGroup(const float* values, int8_t* out) {
  constexpr bool kIsInt8 = Cells::kQuadsPerStep == 1;
  constexpr size_t kGroup = static_cast<size_t>(Cells::kGroup);
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::Rebind<int32_t, decltype(dd)> di;
  const hn::Rebind<int8_t, decltype(dd)> d8;
  std::fill_n(out, kGroup, int8_t{0});
  float largest;
  if (!FindLargest(values, kGroup, &largest)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  float exact = largest / 127;
  if (!kIsInt8) {
    size_t first = 0;
    while (std::fabs(values[first]) != largest) ++first;
    exact = values[first] / -8;
  }
  const float scale = FromBF16(ToBF16(exact));
  if (scale == 0) return scale;
  const auto divisor = hn::Set(dd, double{scale});
  const auto lowest = hn::Set(dd, kIsInt8 ? -127.0 : -8.0);
  const auto highest = hn::Set(dd, kIsInt8 ? 127.0 : 7.0);
  for (size_t i = 0; i < kGroup; i += hn::Lanes(dd)) {
    const auto steps = hn::Round(
        hn::Div(hn::PromoteTo(dd, hn::LoadU(df, values + i)), divisor));
    const auto clamped = hn::Min(hn::Max(steps, lowest), highest);
    hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(di, clamped)), d8, out + i);
  }
  return scale;
}

// sums [kOutputs] += integers * scales_w * scale_x. scales_w: bf16.
HWY_INLINE void AddScaled(const int32_t* integers, const uint16_t* scales_w,
                          float scale_x, float* sums) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  HWY_ALIGN float scales[kOutputs];
  for (int o = 0; o < kOutputs; ++o) scales[o] = FromBF16(scales_w[o]);
  const VF32 x = hn::Set(df, scale_x);
  for (size_t o = 0; o < kOutputs; o += FloatLanes()) {
    const VF32 sum = hn::ConvertTo(df, hn::Load(di, integers + o));
    const VF32 scale = hn::Mul(hn::Load(df, scales + o), x);
    hn::Store(hn::MulAdd(sum, scale, hn::Load(df, sums + o)), df, sums + o);
  }
}

// integers[o] += sum_i w[4 o + i] * x[i]
HWY_INLINE void AddQuad(const uint8_t* w, const int8_t* x, int shift, int mask,
                        int32_t* integers) {
  for (int o = 0; o < kOutputs; ++o) {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += (w[4 * o + i] >> shift & mask) * x[i];
    integers[o] += sum;
  }
}

template <class Cells, int kRows>
void RunSegment(const GemmSegment& s) {
  constexpr int kQuads = Cells::kGroup / 4;
  const auto* w = reinterpret_cast<const uint8_t*>(s.weights);
  const char* x = s.x;
  for (size_t c = 0; c < s.cells;
       ++c, w += Cells::kBytes, x += kRows * Cells::kRowBytes) {
    const auto* scales_w = reinterpret_cast<const uint16_t*>(
        w + Cells::kSteps * Cells::kStepBytes);
    const auto* scales =
        reinterpret_cast<const float*>(x + kRows * Cells::kGroup);
    const auto* corrections = reinterpret_cast<const int32_t*>(scales + kRows);
    for (int row = 0; row < kRows; ++row) {
      const auto* quads = reinterpret_cast<const int8_t*>(x) + size_t{4} * row;
      HWY_ALIGN int32_t integers[kOutputs];
      std::fill_n(integers, kOutputs, corrections[row]);
      for (int step = 0; step < Cells::kSteps; ++step) {
        const uint8_t* from = w + step * Cells::kStepBytes;
        const int8_t* quad = quads + size_t{4} * kRows * step;
        if (Cells::kQuadsPerStep == 1) {
          AddQuad(from, quad, 0, 255, integers);
        } else {
          AddQuad(from, quad, 0, 15, integers);
          AddQuad(from, quad + 4 * kRows * kQuads / 2, 4, 15, integers);
        }
      }
      AddScaled(integers, scales_w, scales[row],
                s.sums + size_t{kOutputs} * row);
    }
  }
}

template <class Cells>
void Multiply(const GemmArgs& args, int unit_begin, int unit_end) {
  static constexpr RunGemmSegment kRun[kQuantizedTileRows] = {
      RunSegment<Cells, 1>, RunSegment<Cells, 2>, RunSegment<Cells, 3>,
      RunSegment<Cells, 4>, RunSegment<Cells, 5>, RunSegment<Cells, 6>};
  MultiplyUnits<Cells>(args, unit_begin, unit_end, {kRun, kRun, kRun});
}

QuantizedGemmKernels GetQuantizedGemmKernels() {
  return {QuantizeGroup, QuantizeWeightGroup<Int8Cells>,
          QuantizeWeightGroup<Int4Cells>, Multiply<Int8Cells>,
          Multiply<Int4Cells>};
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(GetQuantizedGemmKernels);

QuantizedGemmKernels PortableQuantizedGemmKernels() {
  return HWY_DYNAMIC_DISPATCH(GetQuantizedGemmKernels)();
}

QuantizedGemmKernels ChooseQuantizedGemmKernels() {
  QuantizedGemmKernels kernels = PortableQuantizedGemmKernels();
  if (UseDotProductKernels(&kernels) || UseNeonKernels(&kernels)) {
    return kernels;
  }
  // Tests may forbid what the CPU has.
  const int64_t targets = hwy::SupportedTargets();
  const bool has_avx3 = (targets & (HWY_AVX3 | HWY_AVX3_DL)) != 0;
  if (has_avx3 && UseVnniKernels(&kernels)) return kernels;
  if (has_avx3 || (targets & HWY_AVX2) != 0) UseAvx2Kernels(&kernels);
  return kernels;
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
