// What the coordinator takes on, from its command line. How much runs, how much
// waits and for how long, also for silent clients and workers; how much one
// client may ask for.

#ifndef COORDINATOR_LIMIT_FLAGS_H_
#define COORDINATOR_LIMIT_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flag_set.h"
#include "common/rpc/server.h"
#include "coordinator/api/inference_service.h"
#include "coordinator/dispatch/dispatcher.h"

namespace nacre::coordinator {

struct Limits {
  int max_running = 0;
  int max_queue = 0;
  int draft_rows = 1;
  int tree_rows = 16;
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
  absl::Duration idle_timeout;  // infinite: none
  absl::Duration max_connection_age = absl::InfiniteDuration();
  InferenceLimits inference;

  void ApplyTo(Dispatcher::Options* options) const;
  void ApplyTo(rpc::RpcServer::Options* clients) const;
};

// The command line's words for them, and their defaults.
struct LimitFlags {
  int max_running = 0;
  int max_queue = 1024;
  int draft_rows = 8;
  int tree_rows = 16;
  absl::Duration queue_timeout = absl::Seconds(60);
  bool hold_without_target = true;
  absl::Duration max_request_duration;
  absl::Duration client_timeout = absl::Seconds(60);
  absl::Duration failover_timeout = absl::Seconds(30);
  absl::Duration worker_timeout = absl::Seconds(5);
  int max_streams_per_client = 0;
  int max_request_bytes = 16 << 20;
  int max_connections = 8192;
  int max_streams_per_connection = 4096;
  int64_t max_client_memory_bytes = int64_t{1} << 30;
  absl::Duration idle_timeout = absl::Minutes(5);
  absl::Duration max_connection_age;
  std::string default_policy = "constant";
  int tokenizer_threads = 2;

  // --max-running to --tokenizer-threads.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT with the flag, its value and its range.
  absl::StatusOr<Limits> Resolve() const;

 private:
  absl::Status Check() const;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_LIMIT_FLAGS_H_
