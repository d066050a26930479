#include "tests/kernels/cuda/emulation/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr int kFraction = 25;  // bits that a term keeps after its point
constexpr int kBias = 127;
constexpr int kLeastExponent = 1 - kBias;
constexpr int kMostExponent = 127;
// A sum is cut as if a term of this power of two were there.
constexpr int kExponentOfZero = -133;
// Of zeros among factors: no product with one is the largest.
constexpr int kNoExponent = -1000;
// Of infinities, whose significand is that of 1, and NaN, whose is not: any
// product with one is the largest.
constexpr int kNotFinite = 4000;
constexpr int kLeastNotFinite = kNotFinite + kNoExponent;

constexpr int kBf16Fraction = 7;
constexpr int kF32Fraction = 23;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kNan = 0x7fffffff;

struct Parts {
  int32_t significand;  // with the sign
  int32_t exponent;
};

// Of a float's bits, of which the last `fraction` are the fraction.
Parts PartsOf(uint32_t bits, int fraction) {
  const uint32_t one = uint32_t{1} << fraction;
  const auto low = static_cast<int32_t>(bits & (one - 1));
  const int field = static_cast<int>(bits >> fraction & 0xff);
  const bool negative = (bits >> (fraction + 8) & 1) != 0;
  Parts parts = {low | static_cast<int32_t>(one), field - kBias};
  if (field == 0) {
    parts = {low, low == 0 ? kNoExponent : kLeastExponent};
  } else if (field == 0xff) {
    parts.exponent = kNotFinite;
  }
  if (negative) parts.significand = -parts.significand;
  return parts;
}

Parts PartsOf(const Factors& factors, int i) {
  return {static_cast<int32_t>(factors.significands[i]), factors.exponents[i]};
}

// Which infinities a sum has, or NaN, as IEEE 754 has it.
class NotFinite {
 public:
  void AddProduct(const Parts& a, const Parts& b) {
    if (std::max(a.exponent, b.exponent) < kNotFinite) return;
    Add(IsNan(a, kBf16Fraction) || IsNan(b, kBf16Fraction) ||
            a.significand == 0 || b.significand == 0,
        (a.significand < 0) != (b.significand < 0));
  }
  void AddTerm(const Parts& term) {
    if (term.exponent < kNotFinite) return;
    Add(IsNan(term, kF32Fraction), term.significand < 0);
  }
  uint32_t Bits() const {
    if (nan_ || (positive_ && negative_)) return kNan;
    return kInfinity | (negative_ ? 0x80000000 : 0);
  }

 private:
  static bool IsNan(const Parts& parts, int fraction) {
    return parts.exponent == kNotFinite &&
           std::abs(parts.significand) != 1 << fraction;
  }
  void Add(bool nan, bool negative) {
    nan_ = nan_ || nan;
    positive_ = positive_ || !negative;
    negative_ = negative_ || negative;
  }

  bool nan_ = false;
  bool positive_ = false;
  bool negative_ = false;
};

// Integers as floats, of which a compiler does several at a time: each product
// has 16 bits, and a power of two changes none, so all is exact but the last
// conversion, which cuts. The products in units of 2^(most - kFraction); their
// sum is below 2^31.
int32_t SumOfProducts(const Factors& a, const Factors& b, int most) {
  int32_t total = 0;
  for (int i = 0; i < kFusedProducts; ++i) {
    const float product = a.significands[i] * b.significands[i];
    const int below = std::min(most - a.exponents[i] - b.exponents[i], 64);
    const int power = kFraction - 2 * kBf16Fraction - below;
    total += static_cast<int32_t>(
        product * std::bit_cast<float>((power + kBias) << kF32Fraction));
  }
  return total;
}

// An accumulator in the same units.
int64_t Cut(const Parts& term, int most) {
  constexpr int kShift = kFraction - kF32Fraction;
  const int32_t magnitude = std::abs(term.significand) << kShift;
  const int32_t cut = magnitude >> std::min(most - term.exponent, 31);
  return term.significand < 0 ? -cut : cut;
}

// sum * 2^(exponent - kFraction), cut to f32. Zero has no sign.
uint32_t ToF32(int64_t sum, int exponent) {
  const uint64_t magnitude = static_cast<uint64_t>(std::abs(sum));
  if (magnitude == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000 : 0;
  const int top = std::bit_width(magnitude) - 1;
  // 2^power <= |sum| < twice that.
  const int power = top + exponent - kFraction;
  if (power > kMostExponent) return sign | kInfinity;
  // The last bit that f32 has.
  const int last = std::max(power, kLeastExponent) - kF32Fraction;
  const int shift = last - (exponent - kFraction);
  const auto kept = static_cast<uint32_t>(shift >= 0 ? magnitude >> shift
                                                     : magnitude << -shift);
  if (kept == 0) return 0;
  if (power < kLeastExponent) return sign | kept;
  return sign | ((static_cast<uint32_t>(power + kBias) << kF32Fraction) +
                 (kept - (uint32_t{1} << kF32Fraction)));
}

}  // namespace

void Factors::Set(int i, uint16_t bits) {
  const Parts parts = PartsOf(bits, kBf16Fraction);
  significands[i] = static_cast<float>(parts.significand);
  exponents[i] = parts.exponent;
}

uint32_t FusedSum(const Factors& a, const Factors& b, uint32_t sum) {
  const Parts start = PartsOf(sum, kF32Fraction);
  int most = std::max(start.exponent, kExponentOfZero);
  for (int i = 0; i < kFusedProducts; ++i) {
    most = std::max(most, a.exponents[i] + b.exponents[i]);
  }
  if (most >= kLeastNotFinite) {
    NotFinite result;
    result.AddTerm(start);
    for (int i = 0; i < kFusedProducts; ++i) {
      result.AddProduct(PartsOf(a, i), PartsOf(b, i));
    }
    return result.Bits();
  }
  return ToF32(Cut(start, most) + SumOfProducts(a, b, most), most);
}

}  // namespace nacre::kernels::cuda::emulation
