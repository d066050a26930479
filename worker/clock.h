// The worker's monotonic clock.

#ifndef WORKER_CLOCK_H_
#define WORKER_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>

namespace nacre::worker {

// Nanoseconds since some fixed point (CLOCK_MONOTONIC).
inline int64_t MonotonicNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Tests put their own in its place.
using Clock = std::function<int64_t()>;

}  // namespace nacre::worker

#endif  // WORKER_CLOCK_H_
