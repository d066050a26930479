// What queues the recorded kernels of a step.
//
// Thread-compatible, on the device's current thread.

#ifndef KERNELS_CUDA_STEP_QUEUE_H_
#define KERNELS_CUDA_STEP_QUEUE_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/recorded_launch.h"

namespace nacre::kernels::cuda {

class StepQueue {
 public:
  virtual ~StepQueue() = default;

  // The lists until the next call are of one step.
  virtual void BeginStep() = 0;

  // Queues `launches` in their order; does not block. The first error.
  virtual cudaError_t Launch(const RecordedLaunches& launches,
                             cudaStream_t stream) = 0;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_STEP_QUEUE_H_
