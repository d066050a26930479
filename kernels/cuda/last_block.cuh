// The last of several blocks of a launch combines the results of all of them.
// This saves a second kernel. A counter finds the last block; it does not
// decide the order of a sum.
//
// Blocks write shared results with __stcg and read them with __ldcg, which
// bypass the cache of a multiprocessor. No block waits for another one, so they
// need not run at the same time.

#ifndef KERNELS_CUDA_LAST_BLOCK_CUH_
#define KERNELS_CUDA_LAST_BLOCK_CUH_

#include <cuda_runtime.h>

namespace nacre::kernels::cuda {

// By one thread, behind a barrier of those whose writes the others are to see:
// whether `count` - 1 have called it before with this counter. Then what they
// wrote is seen, by threads behind a barrier, too. The counter is 0 before the
// first and after the last, so the next launch, or a graph that comes again,
// finds it as this one did. Not before WaitForPrevious: the kernel before may
// still count.
__device__ __forceinline__ bool ComesLast(unsigned* counter, int count) {
  __threadfence();  // our writes come before our count
  const auto most = static_cast<unsigned>(count - 1);
  const bool last = atomicInc(counter, most) == most;
  __threadfence();  // and our reads after it
  return last;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_LAST_BLOCK_CUH_
