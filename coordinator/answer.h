// The answer to one request as its client and the observers see it: text, its
// account, its trace. Turns verdicts and spans into chunks and, at the end, the
// completion.
//
// The dispatcher decides under its lock and adds tasks to queue(); they call
// the other methods, one at a time and in that order, without the lock. The
// tokenizer must outlive it.

#ifndef COORDINATOR_ANSWER_H_
#define COORDINATOR_ANSWER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/clock.h"
#include "coordinator/observer.h"
#include "coordinator/output_queue.h"
#include "coordinator/request.h"
#include "coordinator/worker_info.h"
#include "speculation/session_schedule.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// The verdict on a session that has generated so many tokens, up to max_tokens;
// nullopt where it is no more, and says that it ends there.
absl::optional<speculation::Verdict> CutAtMaxTokens(
    const speculation::Verdict& verdict, int max_tokens, int generated);

class Answer {
 public:
  Answer(std::shared_ptr<const RequestSpec> request,
         const tokenizer::Tokenizer* tokenizer,
         std::shared_ptr<ResponseSink> sink, Observer* observer)
      : request_(std::move(request)),
        tokenizer_(tokenizer),
        sink_(std::move(sink)),
        observer_(observer) {}

  OutputQueue& queue() { return queue_; }
  // The dispatcher's, under its lock: the last turn that added a task.
  uint64_t noted_in = 0;

  // Any thread, at any time:
  //
  // Chunks that the client has not taken, those included that are to be told.
  int pending_chunks() const {
    return untold_chunks_ + sink_->pending_chunks();
  }
  int64_t taken_chunks() const { return sink_->taken_chunks(); }
  // A verdict that is to be shown was added.
  void ExpectChunk() {
    if (request_->stream) ++untold_chunks_;
  }
  // Whether a stop string has ended the text since the last call.
  bool TakeStopped() { return stopped_by_text_.exchange(false); }

  // The tasks call:
  //
  // It waits for room, `position` requests before it.
  void OnQueued(int position) { observer_->OnQueued(*request_, position); }
  // It leaves the queue without having run.
  void Refuse(const absl::Status& status);
  // It runs. Times are nanoseconds of the coordinator's monotonic clock.
  void OnStarted(uint64_t session_id, const Placement& placement,
                 const std::string& numerics_id, int64_t start_ns);
  void OnMoved(const Placement& placement) {
    observer_->OnMoved(session_id_, placement);
  }
  void OnTail(const speculation::Tail& tail) {
    observer_->OnTail(session_id_, tail);
  }
  // Its target has opened it and found so much of the prompt cached; only what
  // the first one says counts: a later one is opened with what was generated,
  // too.
  void OnOpened(int cached_tokens);
  // The same target had so many tokens more of it.
  void OnCached(int tokens);
  // Counts a worker's time and keeps the span if the request asked for a trace.
  void OnSpan(WorkerRole role, const SpanRecord& span, int64_t clock_offset_ns);
  // What its length policy has to go without on its draft.
  void OnPolicyNote(std::string note) { policy_note_ = std::move(note); }

  // What a verdict came to when the session applied it.
  struct Applied {
    // The step as far as it has come; absent where the verdict is all of it.
    absl::optional<speculation::Verdict> step;
    bool step_ended = true;
    speculation::SpeculationStats stats;
    double alpha = 0.0;
    int window = 0;
    int64_t now_ns = 0;
  };
  // Emits its text, ends at a stop string. Behind the end nothing is shown.
  //   logprobs [tokens of the verdict], empty if not asked for
  void Show(const speculation::Verdict& verdict,
            absl::Span<const TokenLogprobs> logprobs, const Applied& applied);
  // Nothing more of that step will come: its target is gone.
  void EndHeldStep(const speculation::Verdict& step);
  // A worker serves it no more: what it did stays in the trace as a lane of its
  // own. `lane` carries role, address and clock. After a target another one
  // will be opened with what is committed.
  void OnWorkerLeft(TraceLane lane);

  uint64_t session_id() const { return session_id_; }
  bool finished() const { return finish_.has_value(); }

  struct End {
    TraceLane target;  // address and clock
    absl::optional<TraceLane> draft;
    double cost_ratio = 0.0;
    int64_t now_ns = 0;
  };
  // Sends the completion. One of the two is the last, and called once.
  void Complete(End end);
  // The session has failed. Where a stop string had ended the text before, it
  // completes nevertheless.
  void Fail(const absl::Status& status, End end);
  // The client takes nothing: Fail follows.
  void Abandon();

 private:
  // Appends tokens up to a stop string; returns the text that may be shown. The
  // last `num_silent` tokens have no text.
  std::string AppendTokens(const std::vector<int32_t>& token_ids,
                           size_t num_silent);
  std::string FlushText();
  void CountRound(const speculation::Verdict& step);

  const std::shared_ptr<const RequestSpec> request_;
  const tokenizer::Tokenizer* const tokenizer_;
  const std::shared_ptr<ResponseSink> sink_;
  Observer* const observer_;
  OutputQueue queue_;
  std::atomic<int> untold_chunks_{0};
  std::atomic<bool> stopped_by_text_{false};

  // Made with the first verdict: a waiting request needs none.
  struct Text {
    Text(const RequestSpec& request, const tokenizer::Tokenizer* tokenizer);
    tokenizer::StreamDecoder decoder;
    tokenizer::StopMatcher stop_matcher;
  };
  std::unique_ptr<Text> text_state_;
  uint64_t session_id_ = 0;
  std::string numerics_id_;              // of its targets
  std::vector<int32_t> token_ids_;       // generated and shown
  std::vector<TokenLogprobs> logprobs_;  // of token_ids_, if asked for
  std::string text_;
  absl::optional<Finish> finish_;
  std::string stop_match_;
  std::string policy_note_;
  bool abandoned_ = false;

  int64_t start_ns_ = 0;
  int64_t first_token_ns_ = 0;
  speculation::SpeculationStats stats_;  // as of the last verdict shown
  double alpha_ = 0.0;
  int window_ = 0;
  double draft_busy_ns_ = 0;
  double draft_wait_ns_ = 0;
  double target_busy_ns_ = 0;
  double target_wait_ns_ = 0;
  int64_t hidden_bytes_ = 0;
  int64_t hidden_ns_ = 0;
  std::vector<SpanRecord> target_spans_;
  std::vector<SpanRecord> draft_spans_;
  std::vector<TraceLane> left_lanes_;  // of workers that it had before
  std::vector<int64_t> step_gaps_ns_;
  std::vector<int64_t> acceptance_histogram_;
  std::vector<Round> rounds_;
  int64_t last_step_end_ns_ = 0;
  absl::optional<int> cached_tokens_;  // absent until it was opened
  bool counts_cached_ = false;         // on the target that opened it first
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_ANSWER_H_
