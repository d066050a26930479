// Takes a step's events off the engine's thread: converting and writing them to
// the sockets would stand between two steps (30-100 us each).
//
// Owns one thread, parked while there is nothing to send: a spinning one would
// take a core from the compute threads. Send and Drain are thread-safe.

#ifndef WORKER_EVENT_SENDER_H_
#define WORKER_EVENT_SENDER_H_

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/events.h"

namespace nacre::worker {

template <typename Events>
class EventSender {
 public:
  // Called on the sender's thread, in the order of Send.
  using Deliver = std::function<void(StreamId, const Events&)>;

  explicit EventSender(Deliver deliver)
      : deliver_(std::move(deliver)), thread_([this] { Run(); }) {}

  // Delivers what was sent.
  ~EventSender() {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
      arrived_.Signal();
    }
    thread_.join();
  }

  // Never blocks for longer than a wake-up.
  void Send(StreamId stream, Events events) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    queue_.emplace_back(stream, std::move(events));
    if (idle_) arrived_.Signal();
  }

  // Returns when everything sent before has been delivered.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    while (!idle_ || !queue_.empty()) drained_.Wait(&mu_);
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::pair<StreamId, Events>> batch;
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        idle_ = true;
        if (queue_.empty()) drained_.SignalAll();
        while (queue_.empty() && !stopped_) arrived_.Wait(&mu_);
        if (queue_.empty()) return;
        idle_ = false;
        batch.swap(queue_);
      }
      for (const auto& [stream, events] : batch) deliver_(stream, events);
      batch.clear();
    }
  }

  const Deliver deliver_;
  absl::Mutex mu_;
  absl::CondVar arrived_;
  absl::CondVar drained_;
  std::vector<std::pair<StreamId, Events>> queue_ ABSL_GUARDED_BY(mu_);
  bool idle_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nacre::worker

#endif  // WORKER_EVENT_SENDER_H_
