// Distinguishes a hung thread from an idle or slow one. Hung: it has work and
// finishes no part of it for `hang_timeout_ns`.
//
// Pure value; times are passed in, nanoseconds of one monotonic clock.

#ifndef COMMON_WATCHDOG_H_
#define COMMON_WATCHDOG_H_

#include <cstdint>

#include "absl/time/time.h"

namespace nacre {

// What a thread has done; any other may read it at any time.
struct Progress {
  // Changes whenever something is finished: a loop, a layer, a tick.
  uint64_t finished = 0;
  // At it, or there is something that has not been taken yet.
  bool working = false;
};

class Watchdog {
 public:
  // Between two observations at most `max_gap_ns` count: in a process that was
  // stopped for a minute no thread has hung for a minute.
  Watchdog(int64_t hang_timeout_ns, int64_t max_gap_ns)
      : hang_timeout_ns_(hang_timeout_ns), max_gap_ns_(max_gap_ns) {}
  // One that is asked once a `period`.
  Watchdog(absl::Duration hang_timeout, absl::Duration period)
      : Watchdog(absl::ToInt64Nanoseconds(hang_timeout),
                 absl::ToInt64Nanoseconds(2 * period)) {}

  // Whether it hangs. Call it regularly: a hang is noticed at most two
  // periods after hang_timeout_ns.
  bool Observe(const Progress& progress, int64_t now_ns);

  // How long there was work and no progress, as of the last Observe.
  int64_t stalled_ns() const { return stalled_ns_; }

 private:
  const int64_t hang_timeout_ns_;
  const int64_t max_gap_ns_;
  Progress last_;
  int64_t last_ns_ = 0;
  int64_t stalled_ns_ = 0;
};

}  // namespace nacre

#endif  // COMMON_WATCHDOG_H_
