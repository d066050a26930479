// Blocks of one launch that wait for each other: a count in global memory. For
// launches all of whose blocks run at the same time.

#ifndef KERNELS_CUDA_BLOCK_COUNTS_CUH_
#define KERNELS_CUDA_BLOCK_COUNTS_CUH_

#include <cuda_runtime.h>

namespace nacre::kernels::cuda {

// By one thread, behind a barrier of those whose writes others are to see.
__device__ __forceinline__ void CountBlock(unsigned* count) {
  asm volatile("red.release.gpu.add.u32 [%0], 1;\n" ::"l"(count) : "memory");
}

// By one thread: returns when `count` has come to `least`. Then what was
// written before that is seen, by threads behind a barrier, too. The two are at
// most 2^31 apart, whatever has wrapped around.
__device__ __forceinline__ void WaitForBlocks(const unsigned* count,
                                              unsigned least) {
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.u32 %0, [%1];\n"
                 : "=r"(now)
                 : "l"(count)
                 : "memory");
  } while (static_cast<int>(now - least) < 0);
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_BLOCK_COUNTS_CUH_
