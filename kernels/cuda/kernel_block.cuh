// What code of a block of a kernel asks of the grid around it: which block it
// is, and how it waits. So one source serves a kernel of its own and a phase of
// PersistentKernel (phase_block.cuh): kernels that can be a phase are a
// function of such a value, `here`, and of their arguments.

#ifndef KERNELS_CUDA_KERNEL_BLOCK_CUH_
#define KERNELS_CUDA_KERNEL_BLOCK_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {

// A block of a kernel of its own.
struct KernelBlock {
  uint4* shared = nullptr;  // what the launch gives of it

  __device__ __forceinline__ dim3 index() const { return blockIdx; }
  __device__ __forceinline__ dim3 grid() const { return gridDim; }
  // All threads of the block.
  __device__ __forceinline__ void Meet() const { __syncthreads(); }
  // As in primitives.cuh. All threads come to WaitForPrevious in one place, or
  // whole warps in different places to WarpWaitsForPrevious.
  __device__ __forceinline__ void LaunchDependents() const {
    cuda::LaunchDependents();
  }
  __device__ __forceinline__ void WaitForPrevious() const {
    cuda::WaitForPrevious();
  }
  __device__ __forceinline__ void WarpWaitsForPrevious() const {
    cuda::WaitForPrevious();
  }
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_KERNEL_BLOCK_CUH_
