// The last of some blocks of a launch does what needs the results of all: then
// no kernel of its own has to. A counter says who is last, and never in which
// order anything is added.
//
// What others read is written by __stcg and read by __ldcg: it passes the cache
// that belongs to one multiprocessor. Blocks wait for nobody, so none need be
// on the device at the same time.

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
