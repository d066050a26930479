// What workers say on their session streams, from protobuf to plain values that
// are safe to count with, whoever sent them.
//
// Pure functions.

#ifndef COORDINATOR_WORKER_EVENTS_CONVERT_H_
#define COORDINATOR_WORKER_EVENTS_CONVERT_H_

#include <cstdint>

#include "coordinator/worker_info.h"
#include "proto/worker.pb.h"

namespace nacre::coordinator {

// Positions and codes that do not fit become -1, which nothing accepts; times,
// sizes, rows and texts are cut to what no worker reaches.
WorkerEvents ToWorkerEvents(const v1::TargetEvent& event);
WorkerEvents ToWorkerEvents(const v1::DraftEvent& event);

// A time: differences of two, and sums with durations, do not overflow.
int64_t ToNs(uint64_t value);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_WORKER_EVENTS_CONVERT_H_
