// What every backend of the host shares: its memory is the host's, and an op is
// done when it returns.

#ifndef KERNELS_HOST_BACKEND_H_
#define KERNELS_HOST_BACKEND_H_

#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

class HostBackend : public Backend {
 public:
  explicit HostBackend(DType kv_type) : kv_type_(kv_type) {}

  DType kv_type() const override { return kv_type_; }
  void BindComputeThread() override {}
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateHostBuffer(bytes);
  }
  void CopyFromHost(const void* host, size_t bytes, void* device) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  const DType kv_type_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_HOST_BACKEND_H_
