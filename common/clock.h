// The monotonic clock, and times on it in nanoseconds.
//
// Thread-safe.

#ifndef COMMON_CLOCK_H_
#define COMMON_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

namespace nacre {

// Nanoseconds since some fixed point (CLOCK_MONOTONIC).
inline int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Tests put their own in its place.
using Clock = std::function<int64_t()>;

// A time that does not come.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// `timeout_ns` (>= 0) after `now_ns`: kNever where that has no number.
inline int64_t After(int64_t now_ns, int64_t timeout_ns) {
  return timeout_ns >= kNever - now_ns ? kNever : now_ns + timeout_ns;
}

}  // namespace nacre

#endif  // COMMON_CLOCK_H_
