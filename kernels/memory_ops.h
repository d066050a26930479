// The memory of a device, copies from and to it, and waits for it.
//
// A part of Backend, and under its conventions and threads (backend.h).

#ifndef KERNELS_MEMORY_OPS_H_
#define KERNELS_MEMORY_OPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/device_memory.h"
#include "kernels/float_view.h"

namespace nacre::kernels {

// Memory on the backend's device, 64-byte aligned, freed with the object.
// Contents start as zero.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() = 0;
  virtual size_t size_bytes() const = 0;
  float* f32() { return static_cast<float*>(data()); }
};

class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  // Where the memory of Allocate lies.
  virtual Location location() const { return Location::kHost; }

  // Memory that Allocate, and weights, take; none where it is the host's,
  // which everything else on the machine shares.
  virtual absl::optional<DeviceMemory> Memory() { return absl::nullopt; }

  // RESOURCE_EXHAUSTED when the device has no room, or none that
  // BackendOptions::max_memory_bytes allows.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;
  // `host` may be changed when the call returns.
  virtual void CopyFromHost(const void* host, size_t bytes, void* device) = 0;
  // Waits for enqueued ops; what is copied is good if Synchronize says so
  // afterwards.
  virtual void CopyToHost(const void* device, size_t bytes, void* host) = 0;

  // Host memory that results are brought to at full speed, without a wait for
  // each. RESOURCE_EXHAUSTED when the host has no room.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnHost(size_t bytes) {
    return Allocate(bytes);  // of a device that is the host
  }
  // Queues a copy to memory of AllocateOnHost. The copy is there after the next
  // Synchronize, or WaitFor of a later mark; the memory lives until then.
  virtual void QueueCopyToHost(const void* device, size_t bytes, void* host) {
    CopyToHost(device, bytes, host);
  }
  // False: it copies nothing, since what it would copy is another rank's.
  virtual bool copies_to_host() const { return true; }
  // Waits for enqueued ops; INTERNAL with the device's own message on failure
  // (RESOURCE_EXHAUSTED when an op found no room), from then on.
  virtual absl::Status Synchronize() = 0;

  // Where ops are queued, after all of them so far: CUDA's stream, for what is
  // queued between them by others (nccl_api.h). Null: not on a stream.
  virtual void* Stream() { return nullptr; }

  // Everything queued so far. WaitFor waits for that, and not for what was
  // queued after it; else it is as Synchronize. For one of the last two marks.
  virtual int64_t Mark() { return 0; }
  virtual absl::Status WaitFor(int64_t mark) {
    static_cast<void>(mark);
    return Synchronize();
  }
};

}  // namespace nacre::kernels

#endif  // KERNELS_MEMORY_OPS_H_
