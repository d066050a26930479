// The coordinator's monotonic clock.

#ifndef COORDINATOR_CLOCK_H_
#define COORDINATOR_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

namespace nacre::coordinator {

inline int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double Seconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

inline constexpr int64_t kSecond = 1'000'000'000;  // ns

// A time that does not come.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// `timeout_ns` (>= 0) after `now_ns`: kNever where that has no number.
inline int64_t After(int64_t now_ns, int64_t timeout_ns) {
  return timeout_ns >= kNever - now_ns ? kNever : now_ns + timeout_ns;
}

// Tests put their own in its place.
using Clock = std::function<int64_t()>;

}  // namespace nacre::coordinator

#endif  // COORDINATOR_CLOCK_H_
