// Tells a hung engine from an idle one and from a slow one: hung is who has
// work and finishes no part of it for `hang_timeout_ns`.
//
// Pure value; times are passed in, nanoseconds of one monotonic clock.

#ifndef WORKER_WATCHDOG_H_
#define WORKER_WATCHDOG_H_

#include <cstdint>

namespace nacre::worker {

// What an engine has done, as anyone may read it at any time.
struct EngineProgress {
  // Changes whenever the engine finishes something: a loop, a layer.
  uint64_t finished = 0;
  // In a step, or told something that it has not taken yet.
  bool working = false;
};

class Watchdog {
 public:
  // Between two observations at most `max_gap_ns` count: in a process that was
  // stopped for a minute the engine has not hung for a minute.
  Watchdog(int64_t hang_timeout_ns, int64_t max_gap_ns)
      : hang_timeout_ns_(hang_timeout_ns), max_gap_ns_(max_gap_ns) {}

  // Whether the engine hangs. Call it regularly: a hang is noticed at most two
  // periods after hang_timeout_ns.
  bool Observe(const EngineProgress& progress, int64_t now_ns);

  // How long there was work and no progress, as of the last Observe.
  int64_t stalled_ns() const { return stalled_ns_; }

 private:
  const int64_t hang_timeout_ns_;
  const int64_t max_gap_ns_;
  EngineProgress last_;
  int64_t last_ns_ = 0;
  int64_t stalled_ns_ = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_WATCHDOG_H_
