#include "coordinator/limit_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/status_macros.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {
namespace {

absl::Status CheckInt(const char* flag, int64_t value, int64_t least,
                      int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is ", value, ", must be in [", least, ", ", most, "]"));
}

absl::Status CheckDuration(const char* flag, absl::Duration value) {
  if (value >= absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " is ",
                                                 absl::FormatDuration(value),
                                                 ", must not be below 0"));
}

// Heartbeats come once a second: less would lose every worker.
absl::Status CheckWorkerTimeout(absl::Duration value) {
  if (value > absl::Seconds(1) && value <= absl::Hours(1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--worker-timeout is ", absl::FormatDuration(value),
                   ", must be longer than 1s and at most 1h"));
}

// Of a connection. gRPC counts milliseconds, and looks no more often than it
// must.
absl::Status CheckLifetime(const char* flag, absl::Duration value) {
  if (value == absl::ZeroDuration() || value >= absl::Seconds(1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " is ",
                                                 absl::FormatDuration(value),
                                                 ", must be 0 or at least 1s"));
}
absl::Duration Lifetime(absl::Duration value) {
  return value == absl::ZeroDuration() ? absl::InfiniteDuration() : value;
}

// 0 is no limit.
int64_t LimitNs(absl::Duration value) {
  return value == absl::ZeroDuration() ? kNever
                                       : absl::ToInt64Nanoseconds(value);
}

}  // namespace

void Limits::ApplyTo(Dispatcher::Options* options) const {
  options->max_running = max_running;
  options->max_queue = max_queue;
  options->draft_rows = draft_rows;
  options->tree_rows = tree_rows;
  options->queue_timeout_ns = queue_timeout_ns;
  options->hold_without_target = hold_without_target;
  options->failover_timeout_ns = failover_timeout_ns;
  options->max_request_ns = max_request_ns;
  options->client_timeout_ns = client_timeout_ns;
}

void Limits::ApplyTo(rpc::RpcServer::Options* clients) const {
  clients->max_request_bytes = max_request_bytes;
  clients->max_connections = max_connections;
  clients->max_streams_per_connection = max_streams_per_connection;
  clients->max_memory_bytes = max_client_memory_bytes;
  clients->max_idle = idle_timeout;
  clients->max_age = max_connection_age;
}

void LimitFlags::Register(FlagSet* flags) {
  flags->Add("max-running", "N", &max_running,
             "sessions of this coordinator at once on each target; 0: as many "
             "as its KV holds");
  flags->Add("max-queue", "N", &max_queue,
             "requests that wait for room; 0: none does");
  flags->Add("draft-rows", "N", &draft_rows,
             "nodes of its token tree that a step of a draft expands for a "
             "session, the likeliest first; 1: chains alone");
  flags->Add(
      "tree-rows", "N", &tree_rows,
      "most nodes of such a tree that a step of a target verifies for a "
      "session; after these its best path goes on; of best it takes those "
      "that pay; 0: the best path alone");
  flags->Add("queue-timeout", "DURATION", &queue_timeout,
             "how long a request waits for room");
  flags->AddSwitch("hold-without-target", &hold_without_target,
                   "on: requests also wait like this while no target is ready, "
                   "if there has been one; off: they are refused at once");
  flags->Add("max-request-duration", "DURATION", &max_request_duration,
             "from a request's arrival to its end; 0: its own deadline only");
  flags->Add("client-timeout", "DURATION", &client_timeout,
             "a client that takes nothing of what waits for it for so long is "
             "cut off; 0: never");
  flags->Add("failover-timeout", "DURATION", &failover_timeout,
             "how long the requests of a lost target wait for an equal one");
  flags->Add("worker-timeout", "DURATION", &worker_timeout,
             "how long a worker may be silent before it counts as lost");
  flags->Add("max-streams-per-client", "N", &max_streams_per_client,
             "streams of one client at once, by token, certificate or host; a "
             "call has one for each of its choices; 0: no limit");
  flags->Add("max-request-bytes", "BYTES", &max_request_bytes,
             "size of a request");
  flags->Add("max-connections", "N", &max_connections,
             "connections of clients at once, and at most half of the files "
             "that the process may open");
  flags->Add("max-streams-per-connection", "N", &max_streams_per_connection,
             "calls of one client connection at once; more wait at the client");
  flags->Add("max-client-memory-bytes", "BYTES", &max_client_memory_bytes,
             "what connections of clients may take in all, with what came in "
             "and is not parsed yet; 0: no limit");
  flags->Add("idle-timeout", "DURATION", &idle_timeout,
             "a client's connection without a call is closed then; 0: never");
  flags->Add("max-connection-age", "DURATION", &max_connection_age,
             "a client's connection takes no more calls then, and its client "
             "makes another; running calls go on; 0: never");
  flags->Add("default-policy", "P", &default_policy,
             "draft-length policy of requests that name none, "
             "NAME[:key=value,...]");
  flags->Add("tokenizer-threads", "N", &tokenizer_threads,
             "threads that tokenize prompts");
}

absl::Status LimitFlags::Check() const {
  constexpr int kMany = 1 << 20;
  for (const absl::Status& status :
       {CheckInt("max-running", max_running, 0, kMany),
        CheckInt("max-queue", max_queue, 0, kMany),
        CheckInt("draft-rows", draft_rows, 1, speculation::kMaxDraftRows),
        CheckInt("tree-rows", tree_rows, 0, speculation::kMaxWindow),
        CheckInt("max-streams-per-client", max_streams_per_client, 0, kMany),
        CheckInt("max-request-bytes", max_request_bytes, 1,
                 rpc::kMaxMessageBytes),
        CheckInt("max-connections", max_connections, 1, kMany),
        CheckInt("max-streams-per-connection", max_streams_per_connection, 1,
                 kMany),
        CheckInt("max-client-memory-bytes", max_client_memory_bytes, 0,
                 std::numeric_limits<int64_t>::max()),
        CheckInt("tokenizer-threads", tokenizer_threads, 1, 256),
        CheckDuration("queue-timeout", queue_timeout),
        CheckDuration("max-request-duration", max_request_duration),
        CheckDuration("client-timeout", client_timeout),
        CheckDuration("failover-timeout", failover_timeout),
        CheckLifetime("idle-timeout", idle_timeout),
        CheckLifetime("max-connection-age", max_connection_age),
        CheckWorkerTimeout(worker_timeout)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Limits> LimitFlags::Resolve() const {
  NACRE_RETURN_IF_ERROR(Check());
  const absl::StatusOr<speculation::PolicySpec> policy =
      speculation::ParsePolicySpec(default_policy);
  if (!policy.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--default-policy: ", policy.status().message()));
  }
  if (policy->kind() == speculation::PolicyKind::kOracle) {
    return absl::InvalidArgumentError(
        "--default-policy: oracle needs a recording with each request");
  }
  Limits limits;
  limits.max_running = max_running;
  limits.max_queue = max_queue;
  limits.draft_rows = draft_rows;
  limits.tree_rows = tree_rows;
  limits.hold_without_target = hold_without_target;
  limits.max_request_bytes = max_request_bytes;
  limits.max_connections = max_connections;
  limits.max_streams_per_connection = max_streams_per_connection;
  limits.max_client_memory_bytes = max_client_memory_bytes;
  limits.idle_timeout = Lifetime(idle_timeout);
  limits.max_connection_age = Lifetime(max_connection_age);
  limits.inference.max_answer_bytes = std::numeric_limits<int64_t>::max();
  if (max_client_memory_bytes > 0) {
    // Beside it there are those that wait to be parsed, and the calls. One
    // request always fits, and what comes before the next look.
    limits.inference.receiving.max_bytes =
        std::max(max_client_memory_bytes / 4, 2 * int64_t{max_request_bytes});
    limits.inference.max_answer_bytes = max_client_memory_bytes / 4;
  }
  // inf is kNever.
  limits.queue_timeout_ns = absl::ToInt64Nanoseconds(queue_timeout);
  limits.failover_timeout_ns = absl::ToInt64Nanoseconds(failover_timeout);
  limits.worker_timeout_ns = absl::ToInt64Nanoseconds(worker_timeout);
  limits.max_request_ns = LimitNs(max_request_duration);
  limits.client_timeout_ns = LimitNs(client_timeout);
  limits.inference.max_streams_per_client = max_streams_per_client;
  limits.inference.parsing.threads = tokenizer_threads;
  limits.inference.default_policy = *policy;
  limits.inference.max_request_ns = limits.max_request_ns;
  limits.inference.client_timeout_ns = limits.client_timeout_ns;
  return limits;
}

}  // namespace nacre::coordinator
