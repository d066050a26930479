// What a worker said of itself when it attached, and the words for what it did
// since.

#ifndef COORDINATOR_FLEET_WORKER_INFO_H_
#define COORDINATOR_FLEET_WORKER_INFO_H_

#include <cstdint>
#include <limits>

#include "wire/hello.h"
#include "wire/session_events.h"

namespace nacre::coordinator {

using wire::WorkerRole;
using WorkerInfo = wire::Hello;

// The sum of two that are not negative, or the largest number: a worker may
// speak of any number of hours.
inline int64_t AddCapped(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return a > kMost - b ? kMost : a + b;
}

using SpanRecord = wire::Span;

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_WORKER_INFO_H_
