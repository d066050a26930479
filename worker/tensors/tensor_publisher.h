// Where a worker puts tensors that others may read. One implementation for each
// transport (transports.h).
//
// Thread-safe, but for Publish of a device's memory (tensor.h). Nothing waits
// for a reader: the caller is an engine between two steps.

#ifndef WORKER_TENSORS_TENSOR_PUBLISHER_H_
#define WORKER_TENSORS_TENSOR_PUBLISHER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/tensors/tensor.h"

namespace nacre::worker {

class TensorPublisher {
 public:
  virtual ~TensorPublisher() = default;

  // Whether a tensor of this channel would reach anybody: who asks first need
  // not make it.
  virtual bool HasReaders(uint64_t channel) const = 0;

  // To all readers of its channel. A reader that has not begun to get an
  // earlier tensor of this channel, layer and side of the norm gets this one
  // instead. What does not own its values is read before this returns.
  virtual void Publish(const Tensor& tensor) = 0;

  // The worker stops: readers learn `reason`. Nothing is published afterwards.
  virtual void EndReaders(const absl::Status& reason) {
    static_cast<void>(reason);
  }
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_PUBLISHER_H_
