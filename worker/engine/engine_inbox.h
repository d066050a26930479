// The way into an engine: gRPC threads push, the engine's thread takes all and
// waits when there is nothing.
//
// Push, Wake and HasItems are thread-safe; Take and Wait belong to the engine's
// thread.

#ifndef WORKER_ENGINE_ENGINE_INBOX_H_
#define WORKER_ENGINE_ENGINE_INBOX_H_

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "worker/engine/clock.h"

namespace nacre::worker {

template <typename Item>
class EngineInbox {
 public:
  void Push(Item item) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    items_.push_back(std::move(item));
    Notify();
  }

  // Lets the running or the next Wait return.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    woken_ = true;
    Notify();
  }

  // Whether Wait would return at once.
  bool HasItems() const { return signal_.load(std::memory_order_acquire); }

  // Replaces `items` by what has arrived, in order. One atomic load when that
  // is nothing.
  void Take(std::vector<Item>* items) ABSL_LOCKS_EXCLUDED(mu_) {
    items->clear();
    if (!signal_.load(std::memory_order_acquire)) return;
    absl::MutexLock lock(&mu_);
    items->swap(items_);
    signal_.store(woken_, std::memory_order_relaxed);
  }

  // Returns when something has arrived, on Wake or at `deadline_ns` of
  // MonotonicNowNs. Spins for at most `spin_ns`, then parks: a core that sleeps
  // takes some 50 microseconds to wake up. While it spins it leaves the core to
  // any thread that can run there.
  void Wait(absl::optional<int64_t> deadline_ns, int64_t spin_ns = 0)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const int64_t begin_ns = MonotonicNowNs();
    spin_ns = std::max(spin_ns, kMinSpinNs);
    while (!signal_.load(std::memory_order_acquire)) {
      const int64_t now_ns = MonotonicNowNs();
      if (deadline_ns.has_value() && now_ns >= *deadline_ns) return;
      if (now_ns - begin_ns > spin_ns) break;
      if (now_ns - begin_ns > kMinSpinNs) sched_yield();
    }
    absl::MutexLock lock(&mu_);
    parked_ = true;
    while (!signal_.load(std::memory_order_relaxed)) {
      if (!deadline_ns.has_value()) {
        arrived_.Wait(&mu_);
        continue;
      }
      const int64_t left_ns = *deadline_ns - MonotonicNowNs();
      if (left_ns <= 0) break;
      arrived_.WaitWithTimeout(&mu_, absl::Nanoseconds(left_ns));
    }
    parked_ = false;
    if (woken_) {
      woken_ = false;
      signal_.store(!items_.empty(), std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int64_t kMinSpinNs = 20'000;

  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    signal_.store(true, std::memory_order_release);
    if (parked_) arrived_.Signal();
  }

  absl::Mutex mu_;
  absl::CondVar arrived_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mu_);
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool parked_ ABSL_GUARDED_BY(mu_) = false;
  // Whether Wait must return; written under mu_, read anywhere.
  std::atomic<bool> signal_{false};
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_ENGINE_INBOX_H_
