// One thread that calls a function at the times it asks for: the dispatcher's
// deadlines and timeouts come true here.

#ifndef COORDINATOR_DISPATCH_TICK_THREAD_H_
#define COORDINATOR_DISPATCH_TICK_THREAD_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/watchdog.h"
#include "coordinator/dispatch/clock.h"

namespace nacre::coordinator {

// Thread-safe.
class TickThread {
 public:
  TickThread() = default;
  ~TickThread() { Stop(); }
  TickThread(const TickThread&) = delete;
  TickThread& operator=(const TickThread&) = delete;

  // Calls `tick` at once and then, each time, when it asked to be called: it
  // returns a time on MonotonicNs' clock, or kNever. Call once.
  void Start(std::function<int64_t()> tick);
  // Asks for a tick at `at_ns` or before. Never blocks; may be called before
  // Start and under locks that `tick` takes.
  void WakeAt(int64_t at_ns);
  // What a watchdog wants to know: the ticks that have ended, and whether one
  // runs or is due.
  Progress progress() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when the running tick has ended; none follows. Idempotent.
  void Stop();

 private:
  void Run(const std::function<int64_t()>& tick);

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  int64_t at_ns_ ABSL_GUARDED_BY(mu_) = kNever;
  bool ticking_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t num_ticks_ ABSL_GUARDED_BY(mu_) = 0;  // that have ended
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_TICK_THREAD_H_
