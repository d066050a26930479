// Writes a step's events to the sockets: on its own thread, where the engine's
// has a forward to run, or on the caller's.
//
// Owns one thread, parked while it is not needed: a spinning one would take a
// core from the compute threads. Thread-safe.

#ifndef WORKER_PROCESS_EVENT_SENDER_H_
#define WORKER_PROCESS_EVENT_SENDER_H_

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/streams.h"

namespace nacre::worker {

template <typename Events>
class EventSender {
 public:
  // Called by one thread at a time, in the order of Send.
  using Write = std::function<void(StreamId, const Events&)>;

  explicit EventSender(Write write)
      : write_(std::move(write)), thread_([this] { Run(); }) {}

  // Writes what was sent.
  ~EventSender() {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
      called_.Signal();
    }
    thread_.join();
  }

  // Keeps the events for the next Deliver.
  void Send(StreamId stream, Events events) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    queue_.emplace_back(stream, std::move(events));
  }

  // kElsewhere takes no longer than a wake-up. kHere returns when all that was
  // sent before is written, or leaves it to the thread that is at it.
  void Deliver(Delivery delivery) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    // The thread that writes looks again before it ends.
    if (writing_ || called_for_ || queue_.empty()) return;
    if (delivery == Delivery::kHere) {
      WriteAll();
    } else {
      called_for_ = true;
      called_.Signal();
    }
  }

  // Returns when everything sent before has been written.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    while (writing_) written_.Wait(&mu_);
    WriteAll();
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    bool stopped = false;
    while (!stopped) {
      while (!called_for_ && !stopped_) called_.Wait(&mu_);
      stopped = stopped_;
      while (writing_) written_.Wait(&mu_);
      called_for_ = false;
      WriteAll();
    }
  }

  // Without the lock while it writes.
  void WriteAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = true;
    while (!queue_.empty()) {
      std::vector<std::pair<StreamId, Events>> batch;
      batch.swap(queue_);
      mu_.Unlock();
      for (const auto& [stream, events] : batch) write_(stream, events);
      mu_.Lock();
    }
    writing_ = false;
    written_.SignalAll();
  }

  const Write write_;
  absl::Mutex mu_;
  absl::CondVar called_;
  absl::CondVar written_;
  std::vector<std::pair<StreamId, Events>> queue_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // The thread is to write, and has not begun.
  bool called_for_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_EVENT_SENDER_H_
