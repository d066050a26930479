// Barriers in shared memory. A thread that comes to one need not wait there,
// and threads may come to it and wait for it in different places.
//
// A barrier has phases. One ends when all its arrivals have come and all bytes
// that they announced. Waiting for a phase is waiting for its parity, 0 first.
// Parity 1 of a barrier that was just made is over. What a thread wrote, or
// read, before it arrived is done for those that waited.

#ifndef KERNELS_CUDA_SHARED_BARRIERS_CUH_
#define KERNELS_CUDA_SHARED_BARRIERS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace nacre::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// By one thread, before a __syncthreads of all that use it.
__device__ __forceinline__ void MakeBarrier(uint64_t* barrier, int arrivals) {
  asm volatile(
      "mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)),
      "r"(arrivals)
      : "memory");
}

__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n"
      "}\n" ::"r"(SharedAddress(barrier))
      : "memory");
}

__device__ __forceinline__ void WaitPhase(uint64_t* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
#define NACRE_WAIT_FOR_PARITY "mbarrier.try_wait.parity.shared.b64"
#else
#define NACRE_WAIT_FOR_PARITY "mbarrier.test_wait.parity.shared.b64"
#endif
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n" NACRE_WAIT_FOR_PARITY
      " done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
#undef NACRE_WAIT_FOR_PARITY
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// For copies of the copy engine: after the last MakeBarrier, by the same
// thread.
__device__ __forceinline__ void ShowBarriers() {
  asm volatile(
      "fence.mbarrier_init.release.cluster;\n"
      "fence.proxy.async.shared::cta;\n" ::
          : "memory");
}

// Arrives, and announces bytes of copies.
__device__ __forceinline__ void ArriveExpecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

#endif

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_SHARED_BARRIERS_CUH_
