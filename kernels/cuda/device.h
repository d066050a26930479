// One GPU, its memory, its one stream, and what went wrong on it.
//
// An error of a launch or a copy is kept, the first one for good: what comes
// after it computes garbage. It never ends the program.
//
// Thread-compatible. CUDA's current device belongs to a thread: MakeCurrent
// before the first use on another one. Outlives the buffers it gives.

#ifndef KERNELS_CUDA_DEVICE_H_
#define KERNELS_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_queue.h"
#include "kernels/device_memory.h"

namespace nacre::kernels::cuda {

// "WHAT: CUDA's message (its name)"; `error` is none but cudaSuccess.
// RESOURCE_EXHAUSTED for memory, FAILED_PRECONDITION where there is no GPU or
// no driver, UNAVAILABLE for a GPU that others have, else INTERNAL.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

struct DeviceOptions {
  int index = 0;
  int64_t max_bytes = 0;  // most that all its buffers have; 0: no limit
  bool overlap = true;    // kernels overlap where the device can (Queue)
};

class Device {
 public:
  // INVALID_ARGUMENT: no device has this index. FAILED_PRECONDITION: no GPU, no
  // driver or too old a one, or a compute capability below 8.0. Else ToStatus.
  static absl::StatusOr<std::unique_ptr<Device>> Open(
      const DeviceOptions& options);
  static absl::StatusOr<std::unique_ptr<Device>> Open(int index) {
    return Open(DeviceOptions{index});
  }
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void MakeCurrent();
  // For kernels.
  Queue queue() {
    ++queued_;
    return {queue_.stream, queue_.overlap, record_};
  }
  // For everything else: after all kernels so far.
  cudaStream_t stream();
  // Grows with each call of these two: while it stays, nothing was queued.
  int64_t queued() const { return queued_; }
  int compute_capability() const { return 10 * major_ + minor_; }
  std::string sm() const;           // "sm90"
  std::string description() const;  // "NVIDIA H200, device 0, sm90"
  int multiprocessors() const { return multiprocessors_; }
  // Shared memory that a block can have.
  size_t shared_bytes() const { return shared_bytes_; }
  // Whether blocks of one launch may wait for each other.
  bool cooperative() const { return cooperative_; }

  // Waits for nothing.
  DeviceMemory Memory();

  // Zeroed by the stream. RESOURCE_EXHAUSTED with the bytes wanted, free and
  // allowed.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes);

  // Zeroed host memory that copies to and from the device need not wait for.
  // RESOURCE_EXHAUSTED with the bytes wanted.
  absl::StatusOr<std::unique_ptr<Buffer>> AllocatePinned(size_t bytes);
  // From here on what AllocatePinned gives is a power of two, and is freed when
  // the device goes: to free it may wait for the kernels of other devices. A
  // buffer that grows so keeps less than it has. The buffers die before that.
  void KeepPinned() { keeps_pinned_ = true; }

  // From here to EndStep kernels are recorded, and queued together before
  // anything else is. `steps` outlives the step.
  void BeginStep(StepQueue* steps);
  void EndStep();

  // Makes *buffer at least `bytes` large (twice as large as before, if that is
  // more: growing waits for the device); what it held is lost. False, and the
  // error is kept, when there is no room.
  bool Grow(size_t bytes, std::unique_ptr<Buffer>* buffer);

  // True for cudaSuccess; else the error is kept. `what` names the operation.
  bool Check(cudaError_t error, absl::string_view what);
  bool ok() const { return first_error_.ok(); }
  const absl::Status& first_error() const { return first_error_; }

  // Waits for all that is queued. The first error of the device's life.
  absl::Status Synchronize();

  // All that is queued so far, to be waited for without what comes after it.
  // One of the last kMarks; an older one is fatal. Errors as of Synchronize.
  static constexpr int kMarks = 4;
  int64_t Mark();
  absl::Status WaitFor(int64_t mark);

 private:
  explicit Device(const DeviceOptions& options)
      : index_(options.index), max_bytes_(options.max_bytes) {
    queue_.overlap = options.overlap;
  }
  void QueueRecorded();

  const int index_;
  const int64_t max_bytes_;
  int64_t used_bytes_ = 0;  // of the buffers there are
  bool keeps_pinned_ = false;
  std::vector<void*> kept_pinned_;  // of buffers that are gone
  std::string name_;
  int major_ = 0;
  int minor_ = 0;
  int multiprocessors_ = 0;
  size_t shared_bytes_ = 0;
  bool cooperative_ = false;
  Queue queue_;
  int64_t queued_ = 0;
  StepQueue* steps_ = nullptr;          // of the step
  RecordedLaunches recorded_;           // of the step, not queued yet
  RecordedLaunches* record_ = nullptr;  // `recorded_` during a step
  cudaEvent_t marks_[kMarks] = {};
  int64_t last_mark_ = 0;
  absl::Status first_error_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_DEVICE_H_
