// What the dispatcher keeps of each worker and each request that waits. Private
// to it, under its lock.

#ifndef COORDINATOR_DISPATCHER_RECORDS_H_
#define COORDINATOR_DISPATCHER_RECORDS_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "coordinator/request.h"
#include "coordinator/worker_client.h"
#include "coordinator/worker_info.h"
#include "speculation/estimators.h"

namespace nacre::coordinator {

struct WorkerRecord {
  WorkerInfo info;
  std::shared_ptr<WorkerClient> client;
  bool ready = true;  // false: draining
  absl::flat_hash_set<uint64_t> sessions;
  int async_sessions = 0;  // of them, on a target
  speculation::StepTimeCurve step_times;
  int64_t last_step_start_ns = 0;
};

struct WaitingRequest {
  RequestSpec request;
  std::shared_ptr<ResponseSink> sink;
  int64_t since_ns = 0;
};

// A client that takes nothing.
struct Stall {
  int64_t since_ns = 0;
  int64_t taken = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCHER_RECORDS_H_
