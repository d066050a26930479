// The order in which the parts of ranks are added (kernels/collective.h).

#ifndef KERNELS_CUDA_SUM_OF_PAIRS_CUH_
#define KERNELS_CUDA_SUM_OF_PAIRS_CUH_

#include <cuda_runtime.h>

#include <cstddef>

namespace nacre::kernels::cuda {

// (p0 + p1) + (p2 + p3) ... of parts that lie `apart` from each other.
template <int kParts>
__device__ __forceinline__ float SumOfPairs(const float* part, size_t apart) {
  if constexpr (kParts == 1) {
    return part[0];
  } else {
    constexpr int kHalf = kParts / 2;
    return SumOfPairs<kHalf>(part, apart) +
           SumOfPairs<kHalf>(part + kHalf * apart, apart);
  }
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_SUM_OF_PAIRS_CUH_
