// Element types of checkpoints, and their exact conversions to float32; and of
// keys and values that are kept.

#ifndef KERNELS_DTYPE_H_
#define KERNELS_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace nacre::kernels {

enum class DType {
  kF32,
  kBF16,
  kF16,
  kInt8,  // of keys and values only, which have a scale beside them
};

inline size_t SizeOf(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kInt8 ? 1 : 2;
}

inline float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float FromF16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1F) {
    return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (fraction << 13));
}

}  // namespace nacre::kernels

#endif  // KERNELS_DTYPE_H_
