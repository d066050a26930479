#include "tests/simulation/protocol/world_tensors.h"

#include <memory>
#include <utility>

namespace nacre::protocol {

bool World::Publisher::HasReaders(uint64_t channel) const {
  for (const auto& [key, subscription] : world_->subscriptions_) {
    if (key.second == channel && subscription.address == Address(process_)) {
      return true;
    }
  }
  return false;
}

void World::Publisher::Publish(worker::Tensor tensor) {
  for (auto it = world_->subscriptions_.begin();
       it != world_->subscriptions_.end();) {
    const auto& [key, subscription] = *it;
    if (key.second != tensor.tag.channel ||
        subscription.address != Address(process_)) {
      ++it;
      continue;
    }
    const bool ends = world_->tensor_random_.Percent(2);
    if (ends || !world_->tensor_random_.Percent(10)) {
      world_->SendTensor(
          key.first, subscription,
          ends ? nullptr : std::make_shared<worker::Tensor>(tensor));
    }
    it = ends ? world_->subscriptions_.erase(it) : std::next(it);
  }
}

void World::Reader::Subscribe(Subscription subscription) {
  // Some cannot be reached.
  if (world_->tensor_random_.Percent(5)) {
    world_->SendTensor(process_, subscription, nullptr);
    return;
  }
  const uint64_t channel = subscription.channel;
  world_->subscriptions_[{process_, channel}] = std::move(subscription);
}

void World::Reader::Unsubscribe(uint64_t channel) {
  world_->subscriptions_.erase({process_, channel});
}

void World::SendTensor(int draft,
                       const worker::TensorReader::Subscription& subscription,
                       std::shared_ptr<worker::Tensor> tensor) {
  tensor_messages_.push_back(
      {draft, subscription.channel, subscription.sink, std::move(tensor)});
  const int64_t delay = tensor_random_.Between(0, 2 * schedule_.hop_ns);
  At(now_ns_ + (tensor_random_.Percent(5) ? 30 * delay : delay),
     Event::Kind::kTensor, static_cast<int>(tensor_messages_.size()) - 1,
     processes_[static_cast<size_t>(draft)].incarnation);
}

void World::DeliverTensor(TensorMessage& message, uint64_t incarnation) {
  Process& process = processes_[static_cast<size_t>(message.draft)];
  const std::shared_ptr<worker::TensorSink> sink = std::move(message.sink);
  if (message.tensor == nullptr) {
    sink->OnLost(message.channel, absl::UnavailableError("lost"));
  } else {
    worker::ReceivedTensor received;
    received.tensor = std::move(*message.tensor);
    received.received_ns = now_ns_ + process.options->clock_offset_ns;
    sink->OnTensor(std::move(received));
    ++counts_.hidden;
  }
  // That of a process that has ended heard nothing.
  if (!process.alive() || process.incarnation != incarnation) return;
  ++process.max_stale_states;
  if (!process.running) StartRun(process);
}

}  // namespace nacre::protocol
