// Where kernels are queued, and how our small ones are launched.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_LAUNCH_H_
#define KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace nacre::kernels::cuda {

// A stream of the current device; not owned.
struct Queue {
  cudaStream_t stream = nullptr;
  // From compute capability 9.0 on: a kernel starts while the one before it
  // ends. Every kernel waits for the one before (WaitForPrevious in
  // primitives.cuh) before it touches anything that one may have written or
  // read, so all before that are done, too.
  bool overlap = false;
};

struct Grid {
  dim3 blocks;
  int threads = 0;          // of a block
  size_t shared_bytes = 0;  // of a block
};

// Blocks of `threads` for `count` items, one item a thread.
inline dim3 BlocksFor(size_t count, int threads) {
  const size_t each = static_cast<size_t>(threads);
  return dim3(static_cast<unsigned>((count + each - 1) / each));
}

// Queues one kernel; does not block.
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(const Queue& queue, const Grid& grid,
                         void (*kernel)(Parameters...),
                         Arguments&&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = queue.stream;
  config.attrs = &attribute;
  config.numAttrs = queue.overlap ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel,
                            std::forward<Arguments>(arguments)...);
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_LAUNCH_H_
