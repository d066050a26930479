#include "coordinator/limit_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"

ABSL_FLAG(int, max_running, 64, "requests that run at once");
ABSL_FLAG(int, max_queue, 1024, "requests that wait for room; 0: none does");
ABSL_FLAG(absl::Duration, queue_timeout, absl::Seconds(60),
          "how long a request waits for room");
ABSL_FLAG(std::string, hold_without_target, "on",
          "on: requests also wait like this while no target is ready, if there "
          "has been one; off: they are refused at once");
ABSL_FLAG(absl::Duration, max_request_duration, absl::ZeroDuration(),
          "from a request's arrival to its end; 0: its own deadline only");
ABSL_FLAG(absl::Duration, client_timeout, absl::Seconds(60),
          "a client that takes nothing of what waits for it for so long is cut "
          "off; 0: never");
ABSL_FLAG(absl::Duration, failover_timeout, absl::Seconds(30),
          "how long the requests of a lost target wait for an equal one");
ABSL_FLAG(absl::Duration, worker_timeout, absl::Seconds(5),
          "how long a worker may be silent before it counts as lost");
ABSL_FLAG(
    int, max_streams_per_client, 0,
    "streams of one client at once, by token, certificate or host; a call has "
    "one for each of its choices; 0: no limit");
ABSL_FLAG(int, max_request_bytes, 16 << 20, "size of a request");
ABSL_FLAG(int, max_connections, 8192,
          "connections of clients at once, and at most half of the files that "
          "the process may open");
ABSL_FLAG(int, max_streams_per_connection, 4096,
          "calls of one client connection at once; more wait at the client");
ABSL_FLAG(int64_t, max_client_memory_bytes, int64_t{1} << 30,
          "what connections of clients may take in all, with what came in and "
          "is not parsed yet; 0: no limit");
ABSL_FLAG(
    std::string, default_policy, "constant",
    "draft-length policy of requests that name none, NAME[:key=value,...]");
ABSL_FLAG(int, tokenizer_threads, 2, "threads that tokenize prompts");

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

absl::StatusOr<bool> OnOrOff(const char* flag, const std::string& value) {
  if (value == "on" || value == "off") return value == "on";
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is \"", value, "\", must be on or off"));
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
}

absl::StatusOr<Limits> LimitsFromFlags() {
  Limits limits;
  limits.max_running = absl::GetFlag(FLAGS_max_running);
  limits.max_queue = absl::GetFlag(FLAGS_max_queue);
  limits.max_request_bytes = absl::GetFlag(FLAGS_max_request_bytes);
  limits.max_connections = absl::GetFlag(FLAGS_max_connections);
  limits.max_streams_per_connection =
      absl::GetFlag(FLAGS_max_streams_per_connection);
  limits.max_client_memory_bytes = absl::GetFlag(FLAGS_max_client_memory_bytes);
  if (limits.max_client_memory_bytes > 0) {
    // Beside it there are those that wait to be parsed, and the calls. One
    // request always fits, and what comes before the next look.
    limits.inference.receiving.max_bytes =
        std::max(limits.max_client_memory_bytes / 4,
                 2 * int64_t{limits.max_request_bytes});
  }
  limits.inference.max_streams_per_client =
      absl::GetFlag(FLAGS_max_streams_per_client);
  limits.inference.parsing.threads = absl::GetFlag(FLAGS_tokenizer_threads);
  const absl::Duration queue_timeout = absl::GetFlag(FLAGS_queue_timeout);
  const absl::Duration request = absl::GetFlag(FLAGS_max_request_duration);
  const absl::Duration client = absl::GetFlag(FLAGS_client_timeout);
  const absl::Duration failover = absl::GetFlag(FLAGS_failover_timeout);
  const absl::Duration worker = absl::GetFlag(FLAGS_worker_timeout);
  const absl::StatusOr<bool> hold =
      OnOrOff("hold-without-target", absl::GetFlag(FLAGS_hold_without_target));
  constexpr int kMany = 1 << 20;
  for (const absl::Status& status :
       {CheckInt("max-running", limits.max_running, 1, kMany),
        CheckInt("max-queue", limits.max_queue, 0, kMany),
        CheckInt("max-streams-per-client",
                 limits.inference.max_streams_per_client, 0, kMany),
        CheckInt("max-request-bytes", limits.max_request_bytes, 1,
                 rpc::kMaxMessageBytes),
        CheckInt("max-connections", limits.max_connections, 1, kMany),
        CheckInt("max-streams-per-connection",
                 limits.max_streams_per_connection, 1, kMany),
        CheckInt("max-client-memory-bytes", limits.max_client_memory_bytes, 0,
                 std::numeric_limits<int64_t>::max()),
        CheckInt("tokenizer-threads", limits.inference.parsing.threads, 1, 256),
        CheckDuration("queue-timeout", queue_timeout),
        CheckDuration("max-request-duration", request),
        CheckDuration("client-timeout", client),
        CheckDuration("failover-timeout", failover), CheckWorkerTimeout(worker),
        hold.status()}) {
    if (!status.ok()) return status;
  }
  const absl::StatusOr<speculation::PolicySpec> policy =
      speculation::ParsePolicySpec(absl::GetFlag(FLAGS_default_policy));
  if (!policy.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--default-policy: ", policy.status().message()));
  }
  if (policy->kind() == speculation::PolicyKind::kOracle) {
    return absl::InvalidArgumentError(
        "--default-policy: oracle needs a recording with each request");
  }
  limits.inference.default_policy = *policy;
  // inf is kNever.
  limits.queue_timeout_ns = absl::ToInt64Nanoseconds(queue_timeout);
  limits.failover_timeout_ns = absl::ToInt64Nanoseconds(failover);
  limits.worker_timeout_ns = absl::ToInt64Nanoseconds(worker);
  limits.hold_without_target = *hold;
  limits.max_request_ns = LimitNs(request);
  limits.client_timeout_ns = LimitNs(client);
  limits.inference.max_request_ns = limits.max_request_ns;
  limits.inference.client_timeout_ns = limits.client_timeout_ns;
  return limits;
}

}  // namespace nacre::coordinator
