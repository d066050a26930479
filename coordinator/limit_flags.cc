#include "coordinator/limit_flags.h"

#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"

ABSL_FLAG(int, max_running, 64, "requests that run at once");
ABSL_FLAG(int, max_queue, 1024, "requests that wait for room; 0: none does");
ABSL_FLAG(absl::Duration, queue_timeout, absl::Seconds(60),
          "how long a request waits for room");
ABSL_FLAG(absl::Duration, max_request_duration, absl::ZeroDuration(),
          "from a request's arrival to its end; 0: its own deadline only");
ABSL_FLAG(absl::Duration, client_timeout, absl::Seconds(60),
          "a client that takes nothing of what waits for it for so long is cut "
          "off; 0: never");
ABSL_FLAG(int, max_streams_per_client, 0,
          "streams of one client at once, by host or certificate; a call has "
          "one for each of its choices; 0: no limit");
ABSL_FLAG(int, max_request_bytes, 16 << 20, "size of a request");
ABSL_FLAG(
    std::string, default_policy, "constant",
    "draft-length policy of requests that name none, NAME[:key=value,...]");
ABSL_FLAG(int, tokenizer_threads, 2, "threads that tokenize prompts");

namespace nacre::coordinator {
namespace {

absl::Status CheckInt(const char* flag, int value, int least, int most) {
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
  options->max_request_ns = max_request_ns;
  options->client_timeout_ns = client_timeout_ns;
}

absl::StatusOr<Limits> LimitsFromFlags() {
  Limits limits;
  limits.max_running = absl::GetFlag(FLAGS_max_running);
  limits.max_queue = absl::GetFlag(FLAGS_max_queue);
  limits.max_request_bytes = absl::GetFlag(FLAGS_max_request_bytes);
  limits.inference.max_streams_per_client =
      absl::GetFlag(FLAGS_max_streams_per_client);
  limits.inference.parsing.threads = absl::GetFlag(FLAGS_tokenizer_threads);
  const absl::Duration queue_timeout = absl::GetFlag(FLAGS_queue_timeout);
  const absl::Duration request = absl::GetFlag(FLAGS_max_request_duration);
  const absl::Duration client = absl::GetFlag(FLAGS_client_timeout);
  constexpr int kMany = 1 << 20;
  for (const absl::Status& status :
       {CheckInt("max-running", limits.max_running, 1, kMany),
        CheckInt("max-queue", limits.max_queue, 0, kMany),
        CheckInt("max-streams-per-client",
                 limits.inference.max_streams_per_client, 0, kMany),
        CheckInt("max-request-bytes", limits.max_request_bytes, 1,
                 rpc::kMaxMessageBytes),
        CheckInt("tokenizer-threads", limits.inference.parsing.threads, 1, 256),
        CheckDuration("queue-timeout", queue_timeout),
        CheckDuration("max-request-duration", request),
        CheckDuration("client-timeout", client)}) {
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
  limits.queue_timeout_ns = absl::ToInt64Nanoseconds(queue_timeout);
  limits.max_request_ns = LimitNs(request);
  limits.client_timeout_ns = LimitNs(client);
  return limits;
}

}  // namespace nacre::coordinator
