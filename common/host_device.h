// Functions that kernels of a GPU compute too, to the same bits. Marked
// NACRE_HOST_DEVICE they are plain C++, and the device's as well where nvcc
// compiles them.
//
// Thread-safe: pure functions.

#ifndef COMMON_HOST_DEVICE_H_
#define COMMON_HOST_DEVICE_H_

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define NACRE_HOST_DEVICE __host__ __device__
#else
#define NACRE_HOST_DEVICE
#endif

namespace nacre {

// What std::bit_cast does, which nvcc keeps for the host.
NACRE_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

NACRE_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

}  // namespace nacre

#endif  // COMMON_HOST_DEVICE_H_
