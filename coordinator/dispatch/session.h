// One running request as the dispatcher keeps it: its schedule, its workers,
// how far its client keeps up. What its client is told is its Answer's.
//
// Used under the dispatcher's lock only.

#ifndef COORDINATOR_DISPATCH_SESSION_H_
#define COORDINATOR_DISPATCH_SESSION_H_

#include <cmath>
#include <cstdint>
#include <memory>

#include "absl/types/optional.h"
#include "coordinator/dispatch/answer.h"
#include "coordinator/dispatch/failover.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/status_board.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/session_schedule.h"
#include "wire/target_messages.h"

namespace nacre::coordinator {

class Session {
 public:
  // `channels`: as what a draft of this session may read its target's tensors.
  Session(uint64_t id, std::shared_ptr<SessionCell> cell,
          std::shared_ptr<Answer> answer, TensorChannels channels,
          double prior_alpha);

  uint64_t id() const { return id_; }
  const RequestSpec& request() const { return *cell_->request; }
  const std::shared_ptr<const RequestSpec>& shared_request() const {
    return cell_->request;
  }
  const TensorChannels& channels() const { return channels_; }
  // The prompt is the request's: committed() begins after it.
  speculation::SessionSchedule& schedule() { return schedule_; }
  const speculation::SessionSchedule& schedule() const { return schedule_; }
  const std::shared_ptr<Answer>& answer() { return answer_; }

  // Applies a verdict. Returns what the draft must be told; nullopt for a
  // repeated or malformed verdict, which is not to be shown. What the target
  // commits after max_tokens does not count: the answer ends there.
  absl::optional<speculation::Commit> ApplyVerdict(
      const speculation::Verdict& verdict);
  // Whether that verdict, just applied, is the last.
  bool Finishes(const speculation::Verdict& verdict) const {
    return verdict.finish != speculation::FinishReason::kNone ||
           schedule_.generated() >= request().max_tokens;
  }
  // What it came to, right after it was applied.
  Answer::Applied Applied(const speculation::Verdict& verdict,
                          int64_t now_ns) const;

  // Counts what a target tells of the prompt. False where it does not go on
  // from what is there, or is of other tokens: it is not to be shown.
  bool ApplyPromptLogprobs(const wire::PromptLogprobs& told);
  int prompt_logprobs() const { return prompt_logprobs_; }
  // Whether some that its client wants are still to come: no verdict may.
  bool LacksPromptLogprobs() const;

  // Learns which sessions share the steps of its target.
  void OnSpan(WorkerRole role, const SpanRecord& span);
  // A worker serves it no more. After a target another one will be opened with
  // what is committed.
  void OnWorkerLeft(WorkerRole role);

  // Committed length to acknowledge to the target; nullopt when it is too early
  // for a message or the client does not keep up.
  absl::optional<int> TakeAcknowledgement();
  // Whether the last one was refused to a client that does not keep up: soon
  // the target waits for it.
  bool is_held_back() const { return held_back_; }

  // Whether its window is chosen for the load that there is.
  bool follows_load() const {
    return request().method == speculation::Method::kAsync ||
           (request().policy.kind() == speculation::PolicyKind::kLoad &&
            schedule_.wants_draft());
  }
  // Rows of its steps, and those that other sessions added to them, smoothed;
  // the latter nullopt before its first step.
  double own_rows() const { return own_rows_; }
  absl::optional<int> other_rows() const {
    if (other_rows_ < 0) return absl::nullopt;
    return static_cast<int>(std::lround(other_rows_));
  }

 private:
  const uint64_t id_;
  const std::shared_ptr<SessionCell> cell_;
  const std::shared_ptr<Answer> answer_;
  const TensorChannels channels_;
  speculation::SessionSchedule schedule_;
  int acknowledged_;
  int prompt_logprobs_ = 0;  // of the prompt after its first token
  bool held_back_ = false;
  double own_rows_ = 1;
  double other_rows_ = -1;  // not known yet
  int64_t last_prefill_start_ns_ = 0;

 public:
  // Which workers serve it (dispatcher's ids; 0 is none): its cell's.
  std::atomic<uint64_t>& target_worker;
  std::atomic<uint64_t>& draft_worker;
  // For nodes of its tree, that it has reserved there.
  int target_slots = 0;
  int draft_slots = 0;
  int64_t draft_length = 0;  // of the text for which it has reserved KV there
  FailoverRecord failover;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_SESSION_H_
