// E4M3, the 8-bit floating point of weights: a sign, 4 bits of exponent (bias
// 7), 3 of mantissa; no infinities, 0x7f and 0xff are NaN. Pure.

#ifndef KERNELS_CUDA_FP8_H_
#define KERNELS_CUDA_FP8_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace nacre::kernels::cuda {

inline constexpr float kLargestE4m3 = 448;

inline float FromE4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  float magnitude = std::ldexp(static_cast<float>(mantissa | 8), exponent - 10);
  if (exponent == 0) magnitude = std::ldexp(static_cast<float>(mantissa), -9);
  if ((code & 0x7f) == 0x7f)
    magnitude = std::numeric_limits<float>::quiet_NaN();
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// Nearest, ties to even; what is too large becomes the largest. `value` is not
// NaN.
inline uint8_t ToE4m3(float value) {
  const float magnitude = std::min(std::fabs(value), kLargestE4m3);
  const int exponent =
      magnitude == 0 ? -6 : std::max(std::ilogb(magnitude), -6);
  // 0 to 16 steps of the last place; 16 carries into the exponent by itself.
  const auto steps =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  const int code = (exponent + 7) * 8 + steps - 8;
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_FP8_H_
