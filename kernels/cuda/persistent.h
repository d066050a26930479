// Many kernels as one that stays (persistent): as many blocks as the device has
// multiprocessors, each of which walks over the kernels, its phases. Where a
// kernel would wait for the one before it, a block waits until all blocks that
// have work in the phase before have counted themselves. Blocks without work in
// a phase go on to the next at once. So weights of a product are fetched while
// the phases before it still run, as far as its ring goes.
//
// Each phase is the source of the kernel that it stands for, with that kernel's
// grid. So its bits are that kernel's.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_PERSISTENT_H_
#define KERNELS_CUDA_PERSISTENT_H_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/phase.h"

namespace nacre::kernels::cuda {

inline constexpr int kPersistentThreads = 256;  // of a block
// From one phase's count to the next's: they lie in lines of their own.
inline constexpr int kPhaseCountStride = 32;

// All pointers are the device's.
struct PersistentArgs {
  const Phase* phases = nullptr;
  int count = 0;
  // [count * kPhaseCountStride]: zeros before the first launch with these
  // phases and as many blocks.
  unsigned* counts = nullptr;
  unsigned launch = 0;  // of those: 1, 2 ...
};

// Shared memory of a block, if that is what the phase that needs most asks for.
size_t PersistentSharedBytes(size_t phase_bytes);

// Queues it; does not block. What it returns is the launch's:
// cudaErrorCooperativeLaunchTooLarge where so many blocks have no room at the
// same time.
cudaError_t LaunchPersistent(cudaStream_t stream, int blocks,
                             size_t shared_bytes, const PersistentArgs& args);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PERSISTENT_H_
