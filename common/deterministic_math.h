// Logarithm, exponential and Gumbel noise as fixed sequences of float32 fused
// multiply-adds. So every backend and compiler computes the same bits, which a
// libm does not promise. Accurate to a few units in the last place.
//
// Thread-safe: pure functions.

#ifndef COMMON_DETERMINISTIC_MATH_H_
#define COMMON_DETERMINISTIC_MATH_H_

#include <cmath>
#include <cstdint>

#include "common/host_device.h"

namespace nacre {

// Natural logarithm of a positive, normal, finite `x`.
NACRE_HOST_DEVICE inline float DeterministicLog(float x);

// e^x for x in [-inf, 88]; 0 below -87.
float DeterministicExp(float x);

// -ln(u) for u = (x + 1/2) * 2^-32, exact in u also where u rounds to 1: an
// exponential variate in (1e-10, 23).
NACRE_HOST_DEVICE inline float NegativeLogUniform(uint32_t x);

// Standard Gumbel variate -ln(-ln(u)), increasing in x.
NACRE_HOST_DEVICE inline float GumbelFromBits(uint32_t x);

// No GumbelFromBits exceeds this (x = 2^32 - 1 gives 22.87).
inline constexpr float kMaxGumbel = 22.9f;

// Of the implementation from here on.

// ln 2 in two parts: kLn2High has trailing zero bits, so e * kLn2High is exact.
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kSqrtHalf = 0.707106781f;

// ln(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]; minimax polynomial of degree
// 11 (coefficients of the Cephes library's logf).
NACRE_HOST_DEVICE inline float Log1pPolynomial(float f) {
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = fmaf(p, f, -1.1514610310e-1f);
  p = fmaf(p, f, 1.1676998740e-1f);
  p = fmaf(p, f, -1.2420140846e-1f);
  p = fmaf(p, f, 1.4249322787e-1f);
  p = fmaf(p, f, -1.6668057665e-1f);
  p = fmaf(p, f, 2.0000714765e-1f);
  p = fmaf(p, f, -2.4999993993e-1f);
  p = fmaf(p, f, 3.3333331174e-1f);
  float tail = p * f;
  tail = fmaf(tail, z, -0.5f * z);
  return f + tail;
}

NACRE_HOST_DEVICE inline float DeterministicLog(float x) {
  const uint32_t bits = BitsOfFloat(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float mantissa = FloatOfBits((bits & 0x007FFFFFu) | 0x3F800000u);
  if (mantissa > 2.0f * kSqrtHalf) {
    mantissa *= 0.5f;
    ++exponent;
  }
  const float e = static_cast<float>(exponent);
  const float log_mantissa = Log1pPolynomial(mantissa - 1.0f);
  return fmaf(e, kLn2High, fmaf(e, kLn2Low, log_mantissa));
}

NACRE_HOST_DEVICE inline float NegativeLogUniform(uint32_t x) {
  if (x < 0x80000000u) {
    const uint64_t odd = 2 * uint64_t{x} + 1;  // u = odd * 2^-33
    return -DeterministicLog(static_cast<float>(odd) * 0x1p-33f);
  }
  // u >= 1/2: work on 1 - u, which is exact, where u itself would round to 1.
  const uint64_t odd = (uint64_t{1} << 33) - (2 * uint64_t{x} + 1);
  const float one_minus_u = static_cast<float>(odd) * 0x1p-33f;
  if (one_minus_u <= 1.0f - kSqrtHalf) return -Log1pPolynomial(-one_minus_u);
  const float two_u_minus_1 = fmaf(-2.0f, one_minus_u, 1.0f);
  return (kLn2High + kLn2Low) - Log1pPolynomial(two_u_minus_1);
}

NACRE_HOST_DEVICE inline float GumbelFromBits(uint32_t x) {
  return -DeterministicLog(NegativeLogUniform(x));
}

}  // namespace nacre

#endif  // COMMON_DETERMINISTIC_MATH_H_
