// Soft caps of scores and logits: as in math.cuh, one fixed sequence of
// operations.

#ifndef KERNELS_CUDA_SOFT_CAP_CUH_
#define KERNELS_CUDA_SOFT_CAP_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/math.cuh"

namespace nacre::kernels::cuda {

// cap * tanh(x / cap), to about 2^-23 of cap; NaN of NaN.
__device__ __forceinline__ float Capped(float x, float cap) {
  const float share = x / cap;
  return cap * (1.0f - 2.0f / (Exp(share + share) + 1.0f));
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_SOFT_CAP_CUH_
