#include "tests/simulation/protocol/world_tensors.h"

#include <iterator>
#include <string>

#include "absl/status/status.h"

namespace nacre::protocol {

class World::Tensors::Publisher final : public worker::TensorPublisher {
 public:
  Publisher(Tensors* tensors, int process)
      : tensors_(tensors), address_(Address(process)) {}

  bool HasReaders(uint64_t channel) const override {
    for (const auto& [key, subscription] : tensors_->subscriptions_) {
      if (key.second == channel && subscription.address == address_) {
        return true;
      }
    }
    return false;
  }

  void Publish(const worker::Tensor& tensor) override {
    auto& subscriptions = tensors_->subscriptions_;
    for (auto it = subscriptions.begin(); it != subscriptions.end();) {
      const auto& [key, subscription] = *it;
      if (key.second != tensor.tag.channel ||
          subscription.address != address_) {
        ++it;
        continue;
      }
      const bool ends = tensors_->random_.Percent(2);
      if (ends || !tensors_->random_.Percent(10)) {
        tensors_->Send(
            key.first, subscription,
            ends ? nullptr : std::make_shared<worker::Tensor>(tensor.OnHost()));
      }
      it = ends ? subscriptions.erase(it) : std::next(it);
    }
  }

 private:
  Tensors* const tensors_;
  const std::string address_;
};

class World::Tensors::Reader final : public worker::TensorReader {
 public:
  Reader(Tensors* tensors, int process)
      : tensors_(tensors), process_(process) {}

  void Subscribe(Subscription subscription) override {
    // Some cannot be reached.
    if (tensors_->random_.Percent(5)) {
      tensors_->Send(process_, subscription, nullptr);
      return;
    }
    const uint64_t channel = subscription.channel;
    tensors_->subscriptions_[{process_, channel}] = std::move(subscription);
  }

  void Unsubscribe(uint64_t channel) override {
    tensors_->subscriptions_.erase({process_, channel});
  }

 private:
  Tensors* const tensors_;
  const int process_;
};

World::Tensors::Tensors(World* world)
    : world_(world),
      random_(world->schedule_.seed * 0x9E3779B97F4A7C15 + 11),
      num_delivered_(world->schedule_.workers.size()) {
  for (size_t i = 0; i < num_delivered_.size(); ++i) {
    const int process = static_cast<int>(i);
    publishers_.push_back(std::make_unique<Publisher>(this, process));
    readers_.push_back(std::make_unique<Reader>(this, process));
  }
}

World::Tensors::~Tensors() = default;

worker::TensorPublisher* World::Tensors::PublisherOf(int process) const {
  return publishers_[static_cast<size_t>(process)].get();
}

worker::TensorReader* World::Tensors::ReaderOf(int process) const {
  return readers_[static_cast<size_t>(process)].get();
}

void World::Tensors::OnStopped(int process) {
  num_delivered_[static_cast<size_t>(process)] = 0;
  std::erase_if(subscriptions_, [process](const auto& entry) {
    return entry.first.first == process;
  });
}

void World::Tensors::Send(int draft, const Subscription& subscription,
                          std::shared_ptr<worker::Tensor> tensor) {
  messages_.push_back(
      {draft, subscription.channel, subscription.sink, std::move(tensor)});
  const int64_t delay = random_.Between(0, 2 * world_->schedule_.hop_ns);
  world_->At(world_->now_ns_ + (random_.Percent(5) ? 30 * delay : delay),
             Event::Kind::kTensor, static_cast<int>(messages_.size()) - 1,
             world_->processes_[static_cast<size_t>(draft)].incarnation);
}

void World::Tensors::Deliver(int index, uint64_t incarnation) {
  Message& message = messages_[static_cast<size_t>(index)];
  Process& process = world_->processes_[static_cast<size_t>(message.draft)];
  const std::shared_ptr<worker::TensorSink> sink = std::move(message.sink);
  if (message.tensor == nullptr) {
    sink->OnLost(message.channel, absl::UnavailableError("lost"));
  } else {
    worker::ReceivedTensor received;
    received.tensor = std::move(*message.tensor);
    received.received_ns = world_->now_ns_ + process.options->clock_offset_ns;
    sink->OnTensor(std::move(received));
    ++world_->counts_.hidden;
  }
  // A process that has ended heard nothing.
  if (!process.alive() || process.incarnation != incarnation) return;
  ++num_delivered_[static_cast<size_t>(message.draft)];
  if (!process.running) world_->StartRun(process);
}

}  // namespace nacre::protocol
