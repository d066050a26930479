// What is remembered of a sampled request while it runs, and the spans that it
// becomes (docs/metrics.md, "Traces"). Holds no prompt, no token and no text.
//
// Plain values. Times: nanoseconds of the coordinator's clock.

#ifndef COORDINATOR_OBSERVE_REQUEST_TRACE_H_
#define COORDINATOR_OBSERVE_REQUEST_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "common/sampling_params.h"
#include "coordinator/dispatch/observer.h"
#include "coordinator/dispatch/round_mode.h"
#include "telemetry/span.h"

namespace nacre::coordinator {

// The sampled requests that one step of a worker worked on, as they are heard
// of. Thread-safe: a request that has ended is read while another joins.
class SharedStep {
 public:
  void Add(const telemetry::SpanContext& request) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    requests_.push_back(request);
  }
  std::vector<telemetry::SpanContext> requests() const
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<telemetry::SpanContext> requests_ ABSL_GUARDED_BY(mu_);
};

// What was asked for.
struct TracedRequest {
  std::string model;
  std::string request_id;
  int num_choices = 1;
  int choice = 0;
  speculation::Method method = speculation::Method::kAsync;
  bool wants_draft = true;  // a step without a draft is degraded
  SamplingParams sampling;
  int max_tokens = 0;
  int prompt_tokens = 0;
  absl::optional<int> cached_tokens;  // of these; absent until it was opened
  bool stream = false;
};

struct RequestTrace : TracedRequest {
  // A stretch of a worker's time, its start on the coordinator's clock.
  struct Work {
    WorkerRole role = WorkerRole::kTarget;
    SpanRecord span;
    std::shared_ptr<const SharedStep> step = nullptr;  // of busy time
  };
  // A verdict; it closes the round that the work before it belongs to.
  struct Round {
    int64_t arrival_ns = 0;
    RoundMode mode = RoundMode::kOff;
    int base_length = 0;
    int tokens = 0;
    int window = 0;    // draft tokens that it verified
    int suffixes = 0;  // and tokens that the target had proposed itself
    int verified = 0;
    int accepted = 0;
    int matched = 0;
    bool degraded = false;
  };
  struct Place {
    int64_t time_ns = 0;
    Placement placement;
  };
  using Event = std::variant<Work, Round, Place>;

  telemetry::SpanContext context;  // of the request's own span
  telemetry::SpanId parent_id{};   // the client's; all zero: none
  std::string trace_state;
  int64_t to_unix_ns = 0;      // added to the coordinator's clock
  std::string server_address;  // host; empty: not known
  int server_port = 0;
  Placement placement;  // the latest

  int64_t arrival_ns = 0;
  int64_t started_ns = 0;
  int64_t finished_ns = 0;
  absl::optional<int> queue_position;
  std::vector<Event> events;   // in the order in which they were heard of
  int64_t dropped_events = 0;  // there were too many

  absl::Status status;
  int64_t first_token_ns = 0;  // 0: none came
  int64_t shown_tokens = 0;
  absl::optional<Finish> finish;
};

// The request's span comes last.
std::vector<telemetry::Span> BuildSpans(const RequestTrace& trace);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_REQUEST_TRACE_H_
