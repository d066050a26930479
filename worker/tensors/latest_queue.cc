#include "worker/tensors/latest_queue.h"

#include <utility>

namespace nacre::worker {

bool LatestQueue::Push(std::shared_ptr<const Tensor> tensor) {
  const TensorTag& tag = tensor->tag;
  for (std::shared_ptr<const Tensor>& waiting : waiting_) {
    const TensorTag& other = waiting->tag;
    if (other.channel == tag.channel && other.layer == tag.layer &&
        other.after_norm == tag.after_norm) {
      waiting = std::move(tensor);
      return true;
    }
  }
  waiting_.push_back(std::move(tensor));
  return false;
}

std::shared_ptr<const Tensor> LatestQueue::Pop() {
  if (waiting_.empty()) return nullptr;
  std::shared_ptr<const Tensor> first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

void LatestQueue::Remove(uint64_t channel) {
  waiting_.remove_if([channel](const std::shared_ptr<const Tensor>& tensor) {
    return tensor->tag.channel == channel;
  });
}

}  // namespace nacre::worker
