// Where a worker puts tensors that others may read. TensorPublisherService
// sends them over gRPC streams; a transport between GPUs would be another one.
//
// Thread-safe; nothing here blocks: the caller is an engine between two steps.

#ifndef WORKER_TENSORS_TENSOR_PUBLISHER_H_
#define WORKER_TENSORS_TENSOR_PUBLISHER_H_

#include <cstdint>

#include "worker/tensors/tensor.h"

namespace nacre::worker {

class TensorPublisher {
 public:
  virtual ~TensorPublisher() = default;

  // Whether a tensor of this channel would reach anybody: who asks first need
  // not make it.
  virtual bool HasReaders(uint64_t channel) const = 0;

  // To all readers of its channel. Those who have not begun to get an earlier
  // one of this channel, layer and side of the norm get this one instead.
  virtual void Publish(Tensor tensor) = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_PUBLISHER_H_
