// Logarithm, exponential and Gumbel noise as fixed sequences of float32 fused
// multiply-adds: every backend and compiler computes the same bits, which a
// libm does not promise. Accurate to a few units in the last place.
//
// Thread-safe: pure functions.

#ifndef COMMON_DETERMINISTIC_MATH_H_
#define COMMON_DETERMINISTIC_MATH_H_

#include <cstdint>

namespace nacre {

// Natural logarithm of a positive, normal, finite `x`.
float DeterministicLog(float x);

// e^x for x in [-inf, 88]; 0 below -87.
float DeterministicExp(float x);

// -ln(u) for u = (x + 1/2) * 2^-32, exact in u also where u rounds to 1: an
// exponential variate in (1e-10, 23).
float NegativeLogUniform(uint32_t x);

// Standard Gumbel variate -ln(-ln(u)), increasing in x.
float GumbelFromBits(uint32_t x);

// No GumbelFromBits exceeds this (x = 2^32 - 1 gives 22.87).
inline constexpr float kMaxGumbel = 22.9f;

}  // namespace nacre

#endif  // COMMON_DETERMINISTIC_MATH_H_
