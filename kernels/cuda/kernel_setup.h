// What a device is told of a kernel once, before the first launch is recorded
// or queued. Never in between: a recorded launch runs with what was said last.
//
// Thread-safe. Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_KERNEL_SETUP_H_
#define KERNELS_CUDA_KERNEL_SETUP_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

namespace nacre::kernels::cuda {

// Of a kernel on the current device:
//   * its blocks may have all the shared memory that a block can have. How many
//     fit on a multiprocessor follows from what a launch asks for;
//   * a multiprocessor that runs it keeps as much shared memory as it can. So
//     blocks of the next kernel, a product, find room beside it.
// A launch that needs more than there is fails for that. Errors are CUDA's.
inline cudaError_t SetUpKernel(const void* kernel, size_t shared_bytes) {
  using Key = std::pair<int, const void*>;  // device, kernel
  static std::mutex mutex;
  static auto& limits = *new std::map<Key, size_t>();
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = limits.find(Key(device, kernel));
  if (found != limits.end() && found->second >= shared_bytes) {
    return cudaSuccess;
  }
  int most = 0;
  status = cudaDeviceGetAttribute(
      &most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(kernel,
                                cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  if (status == cudaSuccess) {
    limits[Key(device, kernel)] = static_cast<size_t>(most);
  }
  return status;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_KERNEL_SETUP_H_
