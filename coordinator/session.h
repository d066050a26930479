// One running request: its schedule, its text, its account. Turns verdicts and
// spans into chunks and, at the end, the completion.
//
// Used under the dispatcher's lock only. The tokenizer must outlive it.

#ifndef COORDINATOR_SESSION_H_
#define COORDINATOR_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/clock.h"
#include "coordinator/request.h"
#include "coordinator/worker_info.h"
#include "speculation/session_schedule.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

class Session {
 public:
  // Times are nanoseconds of the coordinator's monotonic clock.
  Session(uint64_t id, RequestSpec request, double prior_alpha,
          const tokenizer::Tokenizer* tokenizer,
          std::shared_ptr<ResponseSink> sink, int64_t start_ns);

  uint64_t id() const { return id_; }
  // From the arrival of its request to its start.
  int64_t queue_ns() const { return start_ns_ - arrival_ns_; }
  const RequestSpec& request() const { return request_; }
  // As what its drafts read its targets' hidden states, drawn at random: who
  // knows it can. 0: its policy reads none.
  uint64_t hidden_channel() const { return hidden_channel_; }
  speculation::SessionSchedule& schedule() { return schedule_; }
  const speculation::SessionSchedule& schedule() const { return schedule_; }
  ResponseSink& sink() { return *sink_; }

  // Applies a verdict. Returns what the draft must be told; nullopt for a
  // repeated or malformed verdict, which is not to be shown.
  absl::optional<speculation::Commit> ApplyVerdict(
      const speculation::Verdict& verdict);
  // Emits the text of the last applied one, ends at a stop string.
  //   logprobs [tokens of the verdict], empty if not asked for
  void ShowVerdict(const speculation::Verdict& verdict, int64_t now_ns,
                   absl::Span<const TokenLogprobs> logprobs = {});

  // Its target is gone. Returns the step whose last row it held, if any: no
  // other part of it will come.
  const speculation::Verdict* EndHeldStep();

  // Counts a worker's time and keeps the span if the request asked for a trace.
  void OnSpan(WorkerRole role, const SpanRecord& span);
  // Its target has opened it. Returns what of the prompt was cached; nullopt
  // but for the first target: a later one is opened with what was generated,
  // too.
  absl::optional<int> OnOpened(int cached_tokens);
  // The same target had so many tokens more of it. Returns by how much of the
  // prompt that is more; 0 of a later target.
  int OnCached(int tokens);

  // What its length policy has to go without on its draft.
  void OnPolicyNote(std::string note) { policy_note_ = std::move(note); }

  bool finished() const { return finish_.has_value(); }

  // Tokens of the answer so far.
  int num_shown() const { return static_cast<int>(token_ids_.size()); }

  // A worker serves it no more: what it did stays in the trace as a lane of its
  // own. `lane` carries role, address and clock. After a target another one
  // will be opened with what is committed.
  void OnWorkerLeft(TraceLane lane);

  // Sends the completion and returns it. `target` and `draft` lanes carry
  // address and clock.
  Completion Complete(TraceLane target, absl::optional<TraceLane> draft,
                      double cost_ratio, int64_t now_ns);

  // Committed length to acknowledge to the target; nullopt when it is too early
  // for a message or the client does not keep up.
  absl::optional<int> TakeAcknowledgement();
  // Whether the last one was refused to a client that does not keep up: soon
  // the target waits for it.
  bool is_held_back() const { return held_back_; }

  // Whether its window is chosen for the load that there is.
  bool follows_load() const {
    return request_.method == speculation::Method::kAsync ||
           (request_.policy.kind() == speculation::PolicyKind::kLoad &&
            schedule_.wants_draft());
  }
  // Rows of its steps, and those that other sessions added to them, smoothed;
  // the latter nullopt before its first step.
  double own_rows() const { return own_rows_; }
  absl::optional<int> other_rows() const {
    if (other_rows_ < 0) return absl::nullopt;
    return static_cast<int>(other_rows_ + 0.5);
  }

  // Which workers serve it (dispatcher's ids; 0 is none).
  uint64_t target_worker = 0;
  uint64_t draft_worker = 0;
  absl::flat_hash_set<uint64_t> refused_by;  // workers that could not open it

  // For the dispatcher's failover: what a target must be for it to go on there,
  // and, since the last loss, how long it may be without one (kNever once it
  // has gone on), when those that refused it are asked again, how many targets
  // it lost in a row, and why it lost the last.
  struct Failover {
    std::string fingerprint;
    std::string numerics_id;
    int64_t give_up_ns = kNever;
    int64_t retry_ns = kNever;
    int num_losses = 0;
    std::string reason;
  };
  Failover failover;

 private:
  // Appends tokens up to a stop string; returns the text that may be shown. The
  // last `num_silent` tokens have no text.
  std::string AppendTokens(const std::vector<int32_t>& token_ids,
                           size_t num_silent);
  std::string FlushText();
  void CountRound(const speculation::Verdict& step);

  const uint64_t id_;
  const RequestSpec request_;
  const uint64_t hidden_channel_;
  speculation::SessionSchedule schedule_;
  const std::shared_ptr<ResponseSink> sink_;
  tokenizer::StreamDecoder decoder_;
  tokenizer::StopMatcher stop_matcher_;
  std::vector<int32_t> token_ids_;       // generated and shown
  std::vector<TokenLogprobs> logprobs_;  // of token_ids_, if asked for
  std::string text_;
  absl::optional<Finish> finish_;
  std::string stop_match_;
  std::string policy_note_;
  int acknowledged_;
  bool held_back_ = false;

  const int64_t arrival_ns_;
  const int64_t start_ns_;
  int64_t first_token_ns_ = 0;
  double draft_busy_ns_ = 0;
  double draft_wait_ns_ = 0;
  double target_busy_ns_ = 0;
  double target_wait_ns_ = 0;
  int64_t hidden_bytes_ = 0;
  int64_t hidden_ns_ = 0;
  double own_rows_ = 1;
  double other_rows_ = -1;  // not known yet
  std::vector<SpanRecord> target_spans_;
  std::vector<SpanRecord> draft_spans_;
  std::vector<TraceLane> left_lanes_;  // of workers that it had before
  std::vector<int64_t> step_gaps_ns_;
  std::vector<int64_t> acceptance_histogram_;
  std::vector<Round> rounds_;
  int64_t last_step_end_ns_ = 0;
  int64_t last_prefill_start_ns_ = 0;
  absl::optional<int> cached_tokens_;  // absent until it was opened
  bool counts_cached_ = false;         // on the target that opened it first
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_SESSION_H_
