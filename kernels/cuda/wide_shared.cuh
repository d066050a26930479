// Where operands of a warpgroup's products (wide_products.cuh) may begin in
// shared memory.

#ifndef KERNELS_CUDA_WIDE_SHARED_CUH_
#define KERNELS_CUDA_WIDE_SHARED_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/shared_barriers.cuh"

namespace nacre::kernels::cuda {

// Shared memory from the first multiple of kWideAlignment bytes on.
__device__ __forceinline__ uint4* WideShared(uint4* shared) {
  const uint32_t past = SharedAddress(shared) % kWideAlignment;
  return shared + (kWideAlignment - past) % kWideAlignment / sizeof(uint4);
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_WIDE_SHARED_CUH_
