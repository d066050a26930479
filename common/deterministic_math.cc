#include "common/deterministic_math.h"

#include <bit>
#include <cmath>

namespace nacre {
namespace {

// ln 2 in two parts: kLn2High has trailing zero bits, so e * kLn2High is exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kSqrtHalf = 0.707106781f;

// ln(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]; minimax polynomial of degree
// 11 (coefficients of the Cephes library's logf).
float Log1pPolynomial(float f) {
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = std::fma(p, f, -1.1514610310e-1f);
  p = std::fma(p, f, 1.1676998740e-1f);
  p = std::fma(p, f, -1.2420140846e-1f);
  p = std::fma(p, f, 1.4249322787e-1f);
  p = std::fma(p, f, -1.6668057665e-1f);
  p = std::fma(p, f, 2.0000714765e-1f);
  p = std::fma(p, f, -2.4999993993e-1f);
  p = std::fma(p, f, 3.3333331174e-1f);
  float tail = p * f;
  tail = std::fma(tail, z, -0.5f * z);
  return f + tail;
}

}  // namespace

float DeterministicLog(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float mantissa = std::bit_cast<float>((bits & 0x007FFFFFu) | 0x3F800000u);
  if (mantissa > 2.0f * kSqrtHalf) {
    mantissa *= 0.5f;
    ++exponent;
  }
  const float e = static_cast<float>(exponent);
  const float log_mantissa = Log1pPolynomial(mantissa - 1.0f);
  return std::fma(e, kLn2High, std::fma(e, kLn2Low, log_mantissa));
}

float DeterministicExp(float x) {
  if (!(x >= -87.0f)) return 0.0f;
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(-n, kLn2High, x);
  r = std::fma(-n, kLn2Low, r);
  // Minimax polynomial on [-ln2/2, ln2/2] (coefficients of Cephes expf).
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  const uint32_t scale = static_cast<uint32_t>(static_cast<int>(n) + 127) << 23;
  return p * std::bit_cast<float>(scale);
}

float NegativeLogUniform(uint32_t x) {
  if (x < 0x80000000u) {
    const uint64_t odd = 2 * uint64_t{x} + 1;  // u = odd * 2^-33
    return -DeterministicLog(static_cast<float>(odd) * 0x1p-33f);
  }
  // u >= 1/2: work on 1 - u, which is exact, where u itself would round to 1.
  const uint64_t odd = (uint64_t{1} << 33) - (2 * uint64_t{x} + 1);
  const float one_minus_u = static_cast<float>(odd) * 0x1p-33f;
  if (one_minus_u <= 1.0f - kSqrtHalf) return -Log1pPolynomial(-one_minus_u);
  const float two_u_minus_1 = std::fma(-2.0f, one_minus_u, 1.0f);
  return (kLn2High + kLn2Low) - Log1pPolynomial(two_u_minus_1);
}

float GumbelFromBits(uint32_t x) {
  return -DeterministicLog(NegativeLogUniform(x));
}

}  // namespace nacre
