// Stands in for kernels/cuda/shared_barriers.cuh where kernels are compiled for
// the emulated device.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_SHARED_BARRIERS_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_SHARED_BARRIERS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda {

inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(shared));
}

inline void MakeBarrier(uint64_t* barrier, int arrivals) {
  emulation::MakeBarrier(barrier, arrivals);
}
inline void ShowBarriers() {}
inline void Arrive(uint64_t* barrier) { emulation::Arrive(barrier, 0); }
inline void ArriveExpecting(uint64_t* barrier, int bytes) {
  emulation::Arrive(barrier, bytes);
}
inline void WaitPhase(uint64_t* barrier, int parity) {
  emulation::WaitPhase(barrier, parity);
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_SHARED_BARRIERS_CUH_
