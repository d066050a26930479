// A block of a kernel that is a phase of PersistentKernel: some threads of the
// block that runs are it, one block of the phase's grid after another. As
// KernelBlock (kernel_block.cuh).

#ifndef KERNELS_CUDA_PHASE_BLOCK_CUH_
#define KERNELS_CUDA_PHASE_BLOCK_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/block_counts.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {

// When the phase before is done.
struct PhaseBefore {
  const unsigned* count;  // of its blocks that are; null: there is none
  unsigned least;
};

// The first kThreads threads of the block.
template <int kThreadsOf>
struct PhaseBlock {
  static constexpr int kThreads = kThreadsOf;

  uint4* shared;
  dim3 at;  // of the phase's grid
  dim3 blocks;
  PhaseBefore before;

  __device__ __forceinline__ dim3 index() const { return at; }
  __device__ __forceinline__ dim3 grid() const { return blocks; }
  __device__ __forceinline__ void Meet() const { GroupBarrier<kThreads>(0); }
  // Every block is there already.
  __device__ __forceinline__ void LaunchDependents() const {}
  __device__ __forceinline__ void WaitForPrevious() const {
    if (threadIdx.x == 0) Wait();
    Meet();  // all know
  }
  __device__ __forceinline__ void WarpWaitsForPrevious() const {
    if (threadIdx.x % 32 == 0) Wait();
    __syncwarp();
  }

 private:
  __device__ __forceinline__ void Wait() const {
    if (before.count != nullptr) WaitForBlocks(before.count, before.least);
  }
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PHASE_BLOCK_CUH_
