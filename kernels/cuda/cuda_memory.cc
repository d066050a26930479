#include "kernels/cuda/cuda_memory.h"

namespace nacre::kernels::cuda {

void CudaMemory::CopyToHost(const void* device, size_t bytes, void* host) {
  if (bytes == 0 || !device_->ok()) return;
  QueueCopyToHost(device, bytes, host);
  if (!device_->ok()) return;
  device_->Check(cudaStreamSynchronize(device_->stream()), "the device");
}

void CudaMemory::QueueCopyToHost(const void* device, size_t bytes, void* host) {
  if (bytes == 0 || !device_->ok()) return;
  device_->Check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                                 device_->stream()),
                 "a copy to the host");
}

}  // namespace nacre::kernels::cuda
