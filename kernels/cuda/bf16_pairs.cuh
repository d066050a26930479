// Two bf16 values in a word, and how weights of 8 and 4 bits become such pairs.
// All conversions are exact.

#ifndef KERNELS_CUDA_BF16_PAIRS_CUH_
#define KERNELS_CUDA_BF16_PAIRS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/fused.cuh"

namespace nacre::kernels::cuda {

struct Bf16Pairs {
  uint32_t first;   // from bytes 0 and 2 of a word
  uint32_t second;  // from bytes 1 and 3
};

// Magnitude and sign: as the mantissa of 128 + m, which is bf16's for m < 128;
// then 128 is taken off, with the sign.
__device__ __forceinline__ Bf16Pairs PairsOfInt8(uint32_t word) {
  constexpr uint32_t k128 = 0x43004300;
  constexpr uint32_t kMinusOne = 0xbf80bf80;
  constexpr uint32_t kSign = 0x80008000;
  constexpr uint32_t kMagnitude = 0x007f007f;
  const uint32_t first = ((word << 8) & kSign) | k128;
  const uint32_t second = (word & kSign) | k128;
  return {FusedPairs(first, kMinusOne, (word & kMagnitude) | first),
          FusedPairs(second, kMinusOne, ((word >> 8) & kMagnitude) | second)};
}

// Integers + 8 at bits 0 to 3 and 16 to 19, whatever the others are. Each
// becomes the mantissa of 128 + n; then 136 is taken off.
__device__ __forceinline__ uint32_t PairOfInt4(uint32_t word) {
  constexpr uint32_t k128 = 0x43004300;
  constexpr uint32_t kOne = 0x3f803f80;
  constexpr uint32_t kMinus136 = 0xc308c308;
  return FusedPairs((word & 0x000f000f) | k128, kOne, kMinus136);
}

// E4M3: 4 bits of exponent and 3 of mantissa end up as the low and the high end
// of bf16's. What is left is the difference of the exponents' biases, 120. A
// subnormal number becomes one of bf16 and then a normal one.
__device__ __forceinline__ Bf16Pairs PairsOfFp8(uint32_t word) {
  constexpr uint32_t kTwoTo120 = 0x7b807b80;
  constexpr uint32_t kMinusZero = 0x80008000;  // added, it changes nothing
  constexpr uint32_t kSign = 0x80008000;
  constexpr uint32_t kMagnitude = 0x07f007f0;
  const uint32_t first = ((word << 8) & kSign) | ((word << 4) & kMagnitude);
  const uint32_t second = (word & kSign) | ((word >> 4) & kMagnitude);
  return {FusedPairs(first, kTwoTo120, kMinusZero),
          FusedPairs(second, kTwoTo120, kMinusZero)};
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_BF16_PAIRS_CUH_
