// Copies that the copy engine of compute capability 9.0 does by itself, and the
// barriers in shared memory that say when they are there. One thread asks for
// all of a stage. What lands so is seen by products of a warpgroup.
//
// A barrier has phases. One ends when all its arrivals have come and all bytes
// that they announced. Waiting for a phase is waiting for its parity, 0 first.

#ifndef KERNELS_CUDA_BULK_COPIES_CUH_
#define KERNELS_CUDA_BULK_COPIES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace nacre::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// By one thread, before a __syncthreads of all that use it.
__device__ __forceinline__ void MakeBarrier(uint64_t* barrier, int arrivals) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)),
      "r"(arrivals)
      : "memory");
}
// After the last MakeBarrier, by the same thread.
__device__ __forceinline__ void ShowBarriers() {
  asm volatile(
      "fence.mbarrier_init.release.cluster;\n"
      "fence.proxy.async.shared::cta;\n" ::
          : "memory");
}

__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(SharedAddress(barrier))
      : "memory");
}

// Arrives, and announces bytes of copies.
__device__ __forceinline__ void ArriveExpecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void WaitPhase(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

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
