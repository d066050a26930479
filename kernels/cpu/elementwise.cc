#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

float SumOfSquares(const float* x, size_t cols) {
  const F32 df;
  const size_t lanes = FloatLanes();
  VF32 sum0 = hn::Zero(df);
  VF32 sum1 = hn::Zero(df);
  size_t j = 0;
  for (; j + 2 * lanes <= cols; j += 2 * lanes) {
    const VF32 v0 = hn::LoadU(df, x + j);
    const VF32 v1 = hn::LoadU(df, x + j + lanes);
    sum0 = hn::MulAdd(v0, v0, sum0);
    sum1 = hn::MulAdd(v1, v1, sum1);
  }
  if (j + lanes <= cols) {
    const VF32 v = hn::LoadU(df, x + j);
    sum0 = hn::MulAdd(v, v, sum0);
    j += lanes;
  }
  if (j < cols) {
    const VF32 v = LoadTail(x + j, cols - j);
    sum1 = hn::MulAdd(v, v, sum1);
  }
  return SumLanes(hn::Add(sum0, sum1));
}

void RmsNorm(const float* x, int rows, int cols, const float* weight,
             float epsilon, float* out) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t count = static_cast<size_t>(cols);
  for (int i = 0; i < rows; ++i, x += count, out += count) {
    const float mean = SumOfSquares(x, count) / static_cast<float>(cols);
    const float scale = 1.0f / std::sqrt(mean + epsilon);
    const VF32 factor = hn::Set(df, scale);
    size_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      const VF32 v = hn::Mul(hn::LoadU(df, x + j), factor);
      hn::StoreU(hn::Mul(v, hn::LoadU(df, weight + j)), df, out + j);
    }
    if (j < count) {
      const VF32 v = hn::Mul(LoadTail(x + j, count - j), factor);
      StoreTail(hn::Mul(v, LoadTail(weight + j, count - j)), count - j,
                out + j);
    }
  }
}

void Rope(float* x, int num_heads, int head_dim, const float* cos,
          const float* sin) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t half = static_cast<size_t>(head_dim) / 2;
  for (int h = 0; h < num_heads; ++h, x += head_dim) {
    float* upper = x + half;
    size_t j = 0;
    for (; j + lanes <= half; j += lanes) {
      const VF32 c = hn::LoadU(df, cos + j);
      const VF32 s = hn::LoadU(df, sin + j);
      const VF32 first = hn::LoadU(df, x + j);
      const VF32 second = hn::LoadU(df, upper + j);
      hn::StoreU(hn::NegMulAdd(second, s, hn::Mul(first, c)), df, x + j);
      hn::StoreU(hn::MulAdd(first, s, hn::Mul(second, c)), df, upper + j);
    }
    if (const size_t left = half - j; left > 0) {
      const VF32 c = LoadTail(cos + j, left);
      const VF32 s = LoadTail(sin + j, left);
      const VF32 first = LoadTail(x + j, left);
      const VF32 second = LoadTail(upper + j, left);
      StoreTail(hn::NegMulAdd(second, s, hn::Mul(first, c)), left, x + j);
      StoreTail(hn::MulAdd(first, s, hn::Mul(second, c)), left, upper + j);
    }
  }
}

HWY_INLINE VF32 SiluTimes(VF32 gate, VF32 up) {
  const F32 df;
  const VF32 one = hn::Set(df, 1.0f);
  return hn::Mul(hn::Div(gate, hn::Add(one, Exp(hn::Neg(gate)))), up);
}

// gelu(x) = x / (1 + e^(-2u)), which is x / 2 * (1 + tanh u).
HWY_INLINE VF32 GeluTimes(VF32 gate, VF32 up) {
  const F32 df;
  const VF32 one = hn::Set(df, 1.0f);
  const VF32 square = hn::Mul(gate, gate);
  // -2 sqrt(2 / pi) (x + 0.044715 x^3)
  const VF32 inner =
      hn::Mul(gate, hn::MulAdd(square, hn::Set(df, -0.0713548163f),
                               hn::Set(df, -1.59576912f)));
  return hn::Mul(hn::Div(gate, hn::Add(one, Exp(inner))), up);
}

struct Silu {
  HWY_INLINE VF32 operator()(VF32 gate, VF32 up) const {
    return SiluTimes(gate, up);
  }
};
struct Gelu {
  HWY_INLINE VF32 operator()(VF32 gate, VF32 up) const {
    return GeluTimes(gate, up);
  }
};

template <class Times>
void GateMul(const float* gate_up, int rows, int cols, float* out) {
  const F32 df;
  const Times times;
  const size_t lanes = FloatLanes();
  const size_t count = static_cast<size_t>(cols);
  for (int i = 0; i < rows; ++i, gate_up += 2 * count, out += count) {
    const float* up = gate_up + count;
    size_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      hn::StoreU(times(hn::LoadU(df, gate_up + j), hn::LoadU(df, up + j)), df,
                 out + j);
    }
    if (const size_t left = count - j; left > 0) {
      StoreTail(times(LoadTail(gate_up + j, left), LoadTail(up + j, left)),
                left, out + j);
    }
  }
}

void Add(float* x, const float* y, size_t count) {
  const F32 df;
  const size_t lanes = FloatLanes();
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(df, x + i), hn::LoadU(df, y + i)), df, x + i);
  }
  for (; i < count; ++i) x[i] += y[i];
}

// x[i] = f(x[i])
template <class Function>
void Map(float* x, size_t count, const Function& function) {
  const F32 df;
  const size_t lanes = FloatLanes();
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(function(hn::LoadU(df, x + i)), df, x + i);
  }
  if (i < count) {
    StoreTail(function(LoadTail(x + i, count - i)), count - i, x + i);
  }
}

void Scale(float* x, size_t count, float factor) {
  const VF32 by = hn::Set(F32(), factor);
  Map(x, count, [by](VF32 v) HWY_ATTR { return hn::Mul(v, by); });
}

void SoftCap(float* x, size_t count, float cap) {
  const VF32 by = hn::Set(F32(), cap);
  Map(x, count,
      [by](VF32 v) HWY_ATTR { return hn::Mul(by, Tanh(hn::Div(v, by))); });
}

ElementwiseKernels GetElementwiseKernels() {
  return {hwy::TargetName(HWY_TARGET),
          RmsNorm,
          Rope,
          GateMul<Silu>,
          GateMul<Gelu>,
          Scale,
          SoftCap,
          Add};
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(GetElementwiseKernels);

ElementwiseKernels ChooseElementwiseKernels() {
  return HWY_DYNAMIC_DISPATCH(GetElementwiseKernels)();
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
