// The worker's monotonic clock.

#ifndef WORKER_ENGINE_CLOCK_H_
#define WORKER_ENGINE_CLOCK_H_

#include <cstdint>

#include "common/clock.h"

namespace nacre::worker {

using ::nacre::Clock;
inline int64_t MonotonicNowNs() { return MonotonicNs(); }

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_CLOCK_H_
