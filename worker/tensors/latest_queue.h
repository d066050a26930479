// What waits to be sent to one reader: the newest tensor of each kind, so that
// a slow reader gets fewer tensors, not older ones, and the memory is bounded
// by what it subscribed to.
//
// Thread-compatible.

#ifndef WORKER_TENSORS_LATEST_QUEUE_H_
#define WORKER_TENSORS_LATEST_QUEUE_H_

#include <cstdint>
#include <list>
#include <memory>

#include "worker/tensors/tensor.h"

namespace nacre::worker {

class LatestQueue {
 public:
  // A waiting one of the same channel, layer and side of the norm leaves its
  // place to this one. Whether there was any.
  bool Push(std::shared_ptr<const Tensor> tensor);

  // Null: nothing waits.
  std::shared_ptr<const Tensor> Pop();

  // Forgets what waits of a channel.
  void Remove(uint64_t channel);

  bool empty() const { return waiting_.empty(); }

 private:
  std::list<std::shared_ptr<const Tensor>> waiting_;  // first come, first sent
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_LATEST_QUEUE_H_
