// The part of the CUDA backend that owns the device: its memory, copies and
// waits. Its ops only queue (cuda_backend.h); this is where the host waits.
//
// Thread-compatible: one thread (the engine's) calls it.

#ifndef KERNELS_CUDA_CUDA_MEMORY_H_
#define KERNELS_CUDA_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/staging.h"

namespace nacre::kernels::cuda {

class CudaMemory : public Backend {
 public:
  // For what is queued between the backend's own kernels.
  Device& device() { return *device_; }

  void BindComputeThread() override { device_->MakeCurrent(); }
  Location location() const override { return Location::kDevice; }
  absl::optional<DeviceMemory> Memory() override { return device_->Memory(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return device_->Allocate(bytes);
  }
  void CopyFromHost(const void* host, size_t bytes, void* device) override {
    staging_->Upload(host, bytes, device);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override;
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnHost(
      size_t bytes) override {
    return device_->AllocatePinned(bytes);
  }
  void QueueCopyToHost(const void* device, size_t bytes, void* host) override;
  absl::Status Synchronize() override { return device_->Synchronize(); }
  void* Stream() override { return device_->stream(); }
  int64_t Mark() override { return device_->Mark(); }
  absl::Status WaitFor(int64_t mark) override { return device_->WaitFor(mark); }

 protected:
  CudaMemory(std::unique_ptr<Device> device, std::unique_ptr<Staging> staging)
      : device_(std::move(device)), staging_(std::move(staging)) {}

  const std::unique_ptr<Device> device_;  // dies last
  const std::unique_ptr<Staging> staging_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUDA_MEMORY_H_
