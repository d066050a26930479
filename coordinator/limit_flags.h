// What the coordinator takes on, from its command line: how much runs, how much
// waits, for how long, for clients and workers that are silent, too, and how
// much one client may ask for.

#ifndef COORDINATOR_LIMIT_FLAGS_H_
#define COORDINATOR_LIMIT_FLAGS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/rpc/server.h"
#include "coordinator/dispatcher.h"
#include "coordinator/inference_service.h"

namespace nacre::coordinator {

struct Limits {
  int max_running = 0;
  int max_queue = 0;
  int64_t queue_timeout_ns = 0;
  bool hold_without_target = true;
  int64_t max_request_ns = kNever;
  int64_t client_timeout_ns = kNever;
  int64_t failover_timeout_ns = 0;
  int64_t worker_timeout_ns = 0;
  int max_request_bytes = 0;
  int max_connections = 0;
  int max_streams_per_connection = 0;
  int64_t max_client_memory_bytes = 0;
  InferenceLimits inference;

  void ApplyTo(Dispatcher::Options* options) const;
  void ApplyTo(rpc::RpcServer::Options* clients) const;
};

// INVALID_ARGUMENT with the flag, its value and its range.
absl::StatusOr<Limits> LimitsFromFlags();

}  // namespace nacre::coordinator

#endif  // COORDINATOR_LIMIT_FLAGS_H_
