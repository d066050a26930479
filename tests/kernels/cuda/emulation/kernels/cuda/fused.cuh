// Stands in for kernels/cuda/fused.cuh where kernels are compiled for the
// emulated device. Pairs of bf16 are only used for conversions that are exact:
// whatever would be rounded ends the program.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_FUSED_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_FUSED_CUH_

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace nacre::kernels::cuda {

inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float Fused(float a, float b, float c) { return std::fma(a, b, c); }

inline uint32_t FusedPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (const int shift : {0, 16}) {
    const auto half = [shift](uint32_t word) {
      return FloatOf((word >> shift) << 16);
    };
    const auto bits =
        std::bit_cast<uint32_t>(std::fma(half(a), half(b), half(c)));
    if ((bits & 0xffff) != 0) {
      std::fprintf(stderr, "emulated device: a conversion was rounded\n");
      std::exit(1);
    }
    result |= (bits >> 16) << shift;
  }
  return result;
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_FUSED_CUH_
