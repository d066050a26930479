// Copies that the copy engine of compute capability 9.0 does by itself. One
// thread asks for all of a stage, and a barrier says when they are there. What
// lands so is seen by products of a warpgroup.

#ifndef KERNELS_CUDA_BULK_COPIES_CUH_
#define KERNELS_CUDA_BULK_COPIES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared_barriers.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nacre::kernels::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The tile from `row` and `input` on, to a multiple of 1024 bytes. Always
// counts as the bytes of a whole tile.
__device__ __forceinline__ void CopyTile(uint4* shared, const TensorMap& map,
                                         int input, int row,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];\n" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(input), "r"(row), "r"(SharedAddress(barrier))
      : "memory");
}

// Block `block` of the tiles from `tile` on, one after another. Always counts
// as the bytes of all tiles.
__device__ __forceinline__ void CopyBlocks(uint4* shared, const TensorMap& map,
                                           int block, int tile,
                                           uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3, %4}], [%5];\n" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(0), "r"(block), "r"(tile), "r"(SharedAddress(barrier))
      : "memory");
}

#endif

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_BULK_COPIES_CUH_
