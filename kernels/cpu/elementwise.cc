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

// Of f of the elements.
template <class Function>
float SumOf(const float* x, size_t cols, const Function& function) {
  const F32 df;
  const size_t lanes = FloatLanes();
  VF32 sum = hn::Zero(df);
  size_t j = 0;
  for (; j + lanes <= cols; j += lanes) {
    sum = hn::Add(sum, function(hn::LoadU(df, x + j)));
  }
  if (j < cols) {
    const VF32 v = function(LoadTail(x + j, cols - j));
    const auto is_inside = hn::FirstN(df, cols - j);
    sum = hn::Add(sum, hn::IfThenElseZero(is_inside, v));
  }
  return SumLanes(sum);
}

void LayerNorm(const float* x, int rows, int cols, const float* weight,
               const float* bias, float epsilon, float* out) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t count = static_cast<size_t>(cols);
  const float divisor = static_cast<float>(cols);
  for (int i = 0; i < rows; ++i, x += count, out += count) {
    const auto value = [](VF32 v) HWY_ATTR { return v; };
    const VF32 mean = hn::Set(df, SumOf(x, count, value) / divisor);
    const auto square = [mean](VF32 v) HWY_ATTR {
      const VF32 difference = hn::Sub(v, mean);
      return hn::Mul(difference, difference);
    };
    const float variance = SumOf(x, count, square) / divisor;
    const VF32 factor = hn::Set(df, 1.0f / std::sqrt(variance + epsilon));
    const auto normed = [mean, factor](VF32 v, VF32 w, VF32 b) HWY_ATTR {
      return hn::MulAdd(hn::Mul(hn::Sub(v, mean), factor), w, b);
    };
    size_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      hn::StoreU(normed(hn::LoadU(df, x + j), hn::LoadU(df, weight + j),
                        hn::LoadU(df, bias + j)),
                 df, out + j);
    }
    if (const size_t left = count - j; left > 0) {
      StoreTail(normed(LoadTail(x + j, left), LoadTail(weight + j, left),
                       LoadTail(bias + j, left)),
                left, out + j);
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
HWY_INLINE VF32 GeluTanhOf(VF32 x) {
  const F32 df;
  const VF32 one = hn::Set(df, 1.0f);
  const VF32 square = hn::Mul(x, x);
  // -2 sqrt(2 / pi) (x + 0.044715 x^3)
  const VF32 inner = hn::Mul(x, hn::MulAdd(square, hn::Set(df, -0.0713548163f),
                                           hn::Set(df, -1.59576912f)));
  return hn::Div(x, hn::Add(one, Exp(inner)));
}

// gelu(x) = x P(x), where P is the share of the normal distribution below x.
// Of -|x| that is e^(-x^2 / 2) times a smooth function of t = 1 / (1 + 0.3
// |x|), which goes through the Chebyshev nodes of |x| <= 13 to 1.5e-7 of
// itself.
HWY_INLINE VF32 GeluErfOf(VF32 x) {
  const F32 df;
  const VF32 one = hn::Set(df, 1.0f);
  const VF32 size = hn::Abs(x);
  const VF32 t = hn::Div(one, hn::MulAdd(size, hn::Set(df, 0.3f), one));
  VF32 p = hn::Set(df, 0.036565475f);
  p = hn::MulAdd(p, t, hn::Set(df, -0.16081424f));
  p = hn::MulAdd(p, t, hn::Set(df, 0.21239972f));
  p = hn::MulAdd(p, t, hn::Set(df, -0.059085105f));
  p = hn::MulAdd(p, t, hn::Set(df, 0.1313334f));
  p = hn::MulAdd(p, t, hn::Set(df, 0.099098824f));
  p = hn::MulAdd(p, t, hn::Set(df, 0.12088067f));
  p = hn::MulAdd(p, t, hn::Set(df, 0.11962126f));
  const VF32 power = Exp(hn::Mul(hn::Mul(size, size), hn::Set(df, -0.5f)));
  const VF32 below = hn::Mul(hn::Mul(p, t), power);
  const auto is_negative = hn::Lt(x, hn::Zero(df));
  return hn::Mul(x, hn::IfThenElse(is_negative, below, hn::Sub(one, below)));
}

struct Silu {
  HWY_INLINE VF32 operator()(VF32 gate, VF32 up) const {
    return SiluTimes(gate, up);
  }
};
struct Gelu {
  HWY_INLINE VF32 operator()(VF32 gate, VF32 up) const {
    return hn::Mul(GeluTanhOf(gate), up);
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

void GeluTanh(float* x, size_t count) {
  Map(x, count, [](VF32 v) HWY_ATTR { return GeluTanhOf(v); });
}

void GeluErf(float* x, size_t count) {
  Map(x, count, [](VF32 v) HWY_ATTR { return GeluErfOf(v); });
}

void SoftCap(float* x, size_t count, float cap) {
  const VF32 by = hn::Set(F32(), cap);
  Map(x, count,
      [by](VF32 v) HWY_ATTR { return hn::Mul(by, Tanh(hn::Div(v, by))); });
}

ElementwiseKernels GetElementwiseKernels() {
  return {hwy::TargetName(HWY_TARGET),
          RmsNorm,
          LayerNorm,
          Rope,
          GateMul<Silu>,
          GateMul<Gelu>,
          GeluTanh,
          GeluErf,
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
