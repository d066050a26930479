// Arithmetic on bits: fused multiply-adds (one rounding, also where the
// compiler is told not to fuse) and the float that a word holds.

#ifndef KERNELS_CUDA_FUSED_CUH_
#define KERNELS_CUDA_FUSED_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace nacre::kernels::cuda {

// a b + c of two pairs of bf16, subnormal numbers kept.
__device__ __forceinline__ uint32_t FusedPairs(uint32_t a, uint32_t b,
                                               uint32_t c) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n"
      : "=r"(result)
      : "r"(a), "r"(b), "r"(c));
  return result;
}

__device__ __forceinline__ float Fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}

__device__ __forceinline__ float FloatOf(uint32_t bits) {
  return __uint_as_float(bits);
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_FUSED_CUH_
