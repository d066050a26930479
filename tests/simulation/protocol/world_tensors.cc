#include "tests/simulation/protocol/world_tensors.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "absl/status/status.h"

namespace nacre::protocol {

class World::Tensors::Publisher final : public worker::TensorPublisher {
 public:
  Publisher(Tensors* tensors, int process)
      : tensors_(tensors), address_(AddressOf(process)) {}

  bool HasReaders(uint64_t channel) const override {
    for (const auto& [key, reading] : tensors_->subscriptions_) {
      if (key.second == channel && !reading.subscription.rows.has_value() &&
          reading.subscription.address == address_) {
        return true;
      }
    }
    return false;
  }

  void SetRowsWanted(std::function<void()> wake) override {
    wake_ = std::move(wake);
  }
  void Wake() {
    if (wake_ != nullptr) wake_();
  }

  absl::optional<RowsWanted> WantedRows(uint64_t channel,
                                        int there) const override {
    for (const auto& [key, reading] : tensors_->subscriptions_) {
      if (key.second != channel || reading.subscription.address != address_) {
        continue;
      }
      const absl::optional<RowsWanted> wanted = Wanted(reading);
      if (wanted.has_value() && reading.next < std::min(wanted->end, there)) {
        return wanted;
      }
    }
    return absl::nullopt;
  }

  void PublishRows(const worker::Tensor& tensor) override {
    auto& subscriptions = tensors_->subscriptions_;
    for (auto it = subscriptions.begin(); it != subscriptions.end(); ++it) {
      auto& [key, reading] = *it;
      if (key.second != tensor.tag.channel ||
          reading.subscription.address != address_ ||
          reading.subscription.rows->epoch != tensor.tag.epoch ||
          reading.next != tensor.tag.position) {
        continue;
      }
      if (tensors_->random_.Percent(2)) {
        tensors_->Send(key.first, reading.subscription, nullptr);
        subscriptions.erase(it);
        return;
      }
      reading.next += tensor.shape[0];
      if (reading.last_rows != nullptr && tensors_->random_.Percent(5)) {
        tensors_->Send(key.first, reading.subscription, reading.last_rows);
      }
      reading.last_rows = std::make_shared<worker::Tensor>(tensor.OnHost());
      tensors_->Send(key.first, reading.subscription, reading.last_rows);
    }
  }

  void RefuseRows(uint64_t channel, const RowsWanted& wanted,
                  const absl::Status&) override {
    std::erase_if(tensors_->subscriptions_, [&](const auto& entry) {
      const auto& [key, reading] = entry;
      if (key.second != channel || reading.subscription.address != address_ ||
          Wanted(reading) != wanted) {
        return false;
      }
      tensors_->Send(key.first, reading.subscription, nullptr);
      return true;
    });
  }

  void SkipRows(uint64_t channel, const RowsWanted& wanted, int to) override {
    for (auto& [key, reading] : tensors_->subscriptions_) {
      if (key.second == channel && reading.subscription.address == address_ &&
          Wanted(reading) == wanted) {
        reading.subscription.rows->end += std::max(0, to - reading.next);
        reading.next = std::max(reading.next, to);
      }
    }
  }

  void Publish(const worker::Tensor& tensor) override {
    auto& subscriptions = tensors_->subscriptions_;
    for (auto it = subscriptions.begin(); it != subscriptions.end();) {
      const auto& key = it->first;
      const Subscription& subscription = it->second.subscription;
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
  // nullopt: hidden states.
  static absl::optional<RowsWanted> Wanted(const Reading& reading) {
    const auto& rows = reading.subscription.rows;
    if (!rows.has_value()) return absl::nullopt;
    return RowsWanted{rows->shape,  rows->target_fingerprint,
                      reading.next, rows->end,
                      rows->epoch,  rows->draft_fingerprint};
  }

  Tensors* const tensors_;
  const std::string address_;
  std::function<void()> wake_;
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
    if (subscription.rows.has_value()) tensors_->Ask(subscription.address);
    tensors_->subscriptions_[{process_, channel}] = {std::move(subscription)};
  }

  void WantRows(uint64_t channel, int end) override {
    const auto it = tensors_->subscriptions_.find({process_, channel});
    if (it == tensors_->subscriptions_.end()) return;
    it->second.subscription.rows->end = end;
    tensors_->Ask(it->second.subscription.address);
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
  const int64_t delay = random_.Between(0, 2 * world_->schedule_.hop_ns);
  Process& process = world_->processes_[static_cast<size_t>(draft)];
  int64_t due_ns = world_->now_ns() + (random_.Percent(5) ? 30 * delay : delay);
  const auto it = subscriptions_.find({draft, subscription.channel});
  if (subscription.rows.has_value() && it != subscriptions_.end()) {
    due_ns = it->second.due_ns = std::max(due_ns, it->second.due_ns);
  }
  world_->queue_.Post(
      due_ns,
      [this, &process, channel = subscription.channel, sink = subscription.sink,
       tensor = std::move(tensor), incarnation = process.incarnation] {
        Deliver(process, incarnation, channel, *sink, tensor.get());
      });
}

void World::Tensors::Ask(const std::string& address) {
  for (Process& process : world_->processes_) {
    if (AddressOf(process.index) != address) continue;
    world_->queue_.Post(
        world_->now_ns() + random_.Between(0, world_->schedule_.hop_ns),
        [this, &process] {
          if (!process.alive()) return;
          publishers_[static_cast<size_t>(process.index)]->Wake();
          world_->Stir(process);
        });
  }
}

void World::Tensors::Deliver(Process& process, uint64_t incarnation,
                             uint64_t channel, worker::TensorSink& sink,
                             const worker::Tensor* tensor) {
  if (tensor == nullptr) {
    sink.OnLost(channel, absl::UnavailableError("lost"));
  } else {
    worker::ReceivedTensor received;
    received.tensor = *tensor;
    received.received_ns = world_->now_ns() + world_->ClockOffsetOf(process);
    sink.OnTensor(std::move(received));
    ++world_->counts_.hidden;
  }
  // A process that has ended heard nothing.
  if (!process.alive() || process.incarnation != incarnation) return;
  ++num_delivered_[static_cast<size_t>(process.index)];
  world_->Stir(process);
}

}  // namespace nacre::protocol
