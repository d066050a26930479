// Where kernels are queued, and how our small ones are launched.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_LAUNCH_H_
#define KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include "kernels/cuda/kernel_setup.h"
#include "kernels/cuda/recorded_launch.h"

namespace nacre::kernels::cuda {

// A stream of the current device; not owned.
struct Queue {
  cudaStream_t stream = nullptr;
  // From compute capability 9.0 on: a kernel starts while the one before it
  // ends. Every kernel waits for the one before (WaitForPrevious in
  // primitives.cuh) before it touches what that one may have written or read.
  // So all before that are done, too.
  bool overlap = false;
  // Not null: kernels are not queued, but noted there. Not owned.
  RecordedLaunches* record = nullptr;
};

// Blocks of `threads` for `count` items, one item a thread.
inline dim3 BlocksFor(size_t count, int threads) {
  const size_t each = static_cast<size_t>(threads);
  return dim3(static_cast<unsigned>((count + each - 1) / each));
}

// Queues or records one kernel; does not block.
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(const Queue& queue, const Grid& grid,
                         void (*kernel)(Parameters...),
                         Arguments&&... arguments) {
  const cudaError_t status =
      SetUpKernel(reinterpret_cast<const void*>(kernel), grid.shared_bytes);
  if (status != cudaSuccess) return status;
  const std::tuple<Parameters...> values(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  if (queue.record == nullptr) {
    return StartKernel(queue.stream, queue.overlap, grid, kernel, values);
  }
  queue.record->emplace_back(queue.overlap, grid, kernel, values);
  return cudaSuccess;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_LAUNCH_H_
