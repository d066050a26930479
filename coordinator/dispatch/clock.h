// Times of the coordinator: common/clock.h's, and seconds.

#ifndef COORDINATOR_DISPATCH_CLOCK_H_
#define COORDINATOR_DISPATCH_CLOCK_H_

#include <cstdint>

#include "common/clock.h"

namespace nacre::coordinator {

using ::nacre::After;
using ::nacre::Clock;
using ::nacre::kNever;
using ::nacre::MonotonicNs;

inline double Seconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

inline constexpr int64_t kSecond = 1'000'000'000;  // ns

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_CLOCK_H_
