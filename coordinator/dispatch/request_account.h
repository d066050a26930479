// The account of one request: its limit, what its steps came to, what its
// workers did for it and how long, and when. The completion tells it.
//
// Pure: no I/O, no clock, no threads. Times: nanoseconds, those of the
// coordinator on its monotonic clock, those of a span on its worker's.

#ifndef COORDINATOR_DISPATCH_REQUEST_ACCOUNT_H_
#define COORDINATOR_DISPATCH_REQUEST_ACCOUNT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/session_schedule.h"

namespace nacre::coordinator {

// The verdict on a session that has generated so many tokens, cut at
// max_tokens. nullopt where it goes no further, and says that it ends there.
absl::optional<speculation::Verdict> CutAtMaxTokens(
    const speculation::Verdict& verdict, int max_tokens, int generated);

// What a verdict came to when the session applied it.
struct AppliedVerdict {
  // The step as far as it has come; absent where the verdict is all of it.
  absl::optional<speculation::Verdict> step;
  bool step_ended = true;
  speculation::SpeculationStats stats;
  double alpha = 0.0;
  int window = 0;
  int64_t now_ns = 0;
};

class RequestAccount {
 public:
  explicit RequestAccount(std::shared_ptr<const RequestSpec> request)
      : request_(std::move(request)) {}

  void OnStarted(int64_t start_ns) { start_ns_ = start_ns; }
  // Its target has opened it and found so much of the prompt cached. What
  // counts of it; nullopt if nothing: only what the first one says does, since
  // a later one is opened with what was generated, too.
  absl::optional<int> OnOpened(int cached_tokens);
  // The same target had so many tokens more of it. How many count.
  int OnCached(int tokens);
  // A worker's time. Kept if the request asked for a trace.
  void OnSpan(WorkerRole role, const SpanRecord& span);
  // A worker serves it no more: what it did stays in the trace as a lane of its
  // own. `lane` carries role, address and clock. After a target another one
  // will be opened with what is committed.
  void OnWorkerLeft(TraceLane lane);

  // Tokens of it were shown.
  void OnShown(const AppliedVerdict& applied);
  // The text has ended before this step: no other part of it will count.
  void EndStepEarly(const speculation::Verdict& step);
  // A step has ended, or nothing more of it will come.
  void CountRound(const speculation::Verdict& step);

  // Its part of the completion of an answer that ended at `now_ns`, with
  // `num_tokens` shown. Called once, last: moves the trace.
  //   num_tokens     without those that it resumed
  //   target, draft  the lanes of its last workers: address and clock
  void Close(int64_t num_tokens, int64_t now_ns, TraceLane target,
             absl::optional<TraceLane> draft, Completion* completion);

 private:
  // What the workers of one role did for it.
  struct Time {
    double busy_ns = 0.0;
    double wait_ns = 0.0;
    std::vector<SpanRecord> spans;  // of the present one
  };
  Time& TimeOf(WorkerRole role) {
    return role == WorkerRole::kDraft ? draft_ : target_;
  }
  void CountStep(const SpanRecord& span);

  const std::shared_ptr<const RequestSpec> request_;
  int64_t start_ns_ = 0;
  int64_t first_token_ns_ = 0;
  speculation::SpeculationStats stats_;  // as of the last verdict shown
  double alpha_ = 0.0;
  int window_ = 0;
  Time target_;
  Time draft_;
  int64_t hidden_bytes_ = 0;
  int64_t hidden_ns_ = 0;
  std::vector<TraceLane> left_lanes_;  // of workers that it had before
  std::vector<int64_t> step_gaps_ns_;
  std::vector<int64_t> acceptance_histogram_;
  std::vector<Round> rounds_;
  int64_t last_step_end_ns_ = 0;
  double wait_after_miss_ns_ = 0.0;    // of the target's waits
  absl::optional<int> cached_tokens_;  // absent until it was opened
  bool counts_cached_ = false;         // on the target that opened it first
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_REQUEST_ACCOUNT_H_
