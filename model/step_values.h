// Floats of a model's steps beside Activations: in its backend's memory, and on
// the host where results are brought. They grow to the largest step and are
// then reused.
//
// Thread-compatible, as the backend, which outlives them.

#ifndef MODEL_STEP_VALUES_H_
#define MODEL_STEP_VALUES_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/memory_ops.h"

namespace nacre::model {

class StepValues {
 public:
  explicit StepValues(kernels::MemoryOps* memory) : memory_(memory) {}

  // Makes room for so many; where it had less, its values are lost. Not in the
  // middle of a step that uses it. RESOURCE_EXHAUSTED: it is empty.
  absl::Status Reserve(size_t count);
  // Null: nothing was reserved.
  float* data() const { return data_ == nullptr ? nullptr : data_->f32(); }
  // Queues a copy of values of the host to those from `first` on.
  void Send(absl::Span<const float> values, size_t first = 0);

 private:
  kernels::MemoryOps* const memory_;
  size_t size_ = 0;
  std::unique_ptr<kernels::Buffer> data_;
};

class BroughtValues {
 public:
  explicit BroughtValues(kernels::MemoryOps* memory) : memory_(memory) {}

  // As StepValues::Reserve, of the host.
  absl::Status Reserve(size_t count);
  // Queues a copy of `count` values to those from `first` on. They are there
  // after the backend's next Synchronize.
  void Bring(const float* values, size_t count, size_t first = 0);
  absl::Span<const float> Get(size_t first, size_t count) const;

 private:
  kernels::MemoryOps* const memory_;
  size_t size_ = 0;
  std::unique_ptr<kernels::Buffer> data_;
};

}  // namespace nacre::model

#endif  // MODEL_STEP_VALUES_H_
