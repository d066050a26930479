// Stands in for kernels/cuda/block_counts.cuh where kernels are compiled for
// the emulated device.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_BLOCK_COUNTS_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_BLOCK_COUNTS_CUH_

#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda {

inline void CountBlock(unsigned* count) { emulation::CountBlock(count); }
inline void WaitForBlocks(const unsigned* count, unsigned least) {
  emulation::WaitForBlocks(count, least);
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_BLOCK_COUNTS_CUH_
