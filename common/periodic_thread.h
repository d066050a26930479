// One thread that calls a function again and again. A class that looks at a
// clock, a file or a counter need not write a thread of its own.

#ifndef COMMON_PERIODIC_THREAD_H_
#define COMMON_PERIODIC_THREAD_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace nacre {

// Owns the thread. Start and Stop are for one thread, the owner's.
class PeriodicThread {
 public:
  PeriodicThread() = default;
  ~PeriodicThread() { Stop(); }
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

  // Calls `run` a period after now and a period after each call. Call once.
  void Start(absl::Duration period, std::function<void()> run) {
    thread_ = std::thread([this, period, run = std::move(run)] {
      while (!stop_.WaitForNotificationWithTimeout(period)) run();
    });
  }

  // Returns when the running call has ended; none follows. Idempotent.
  void Stop() {
    if (!stop_.HasBeenNotified()) stop_.Notify();
    if (thread_.joinable()) thread_.join();
  }

 private:
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace nacre

#endif  // COMMON_PERIODIC_THREAD_H_
