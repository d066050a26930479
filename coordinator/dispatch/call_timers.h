// When calls of clients are looked at again: a time each, at most.

#ifndef COORDINATOR_DISPATCH_CALL_TIMERS_H_
#define COORDINATOR_DISPATCH_CALL_TIMERS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/dispatch/clock.h"

namespace nacre::coordinator {

// Thread-safe.
class CallTimers {
 public:
  // `wake_at` asks for a Tick at this time or before; it never blocks. Without
  // it the owner ticks often enough.
  explicit CallTimers(std::function<void(int64_t at_ns)> wake_at)
      : wake_at_(std::move(wake_at)) {}

  // Calls `on_time` once at `at_ns`, in place of what was set for `key`
  // before. kNever clears it.
  void Set(const void* key, int64_t at_ns, std::function<void()> on_time)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A call of `on_time` may still run when this returns.
  void Clear(const void* key) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs what is due. When to call it next; kNever where nothing is set.
  int64_t Tick(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Timer {
    int64_t at_ns = 0;
    std::function<void()> on_time;
  };

  // The callback is destroyed without the lock: it may own its call.
  std::function<void()> Take(const void* key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void(int64_t)> wake_at_;
  absl::Mutex mu_;
  absl::flat_hash_map<const void*, Timer> timers_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<int64_t, const void*>> order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_CALL_TIMERS_H_
