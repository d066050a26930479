// The answer to one request as its client and the observers see it: turns
// verdicts and spans into chunks and, at the end, the completion. Its text is a
// TextStream's, its numbers a RequestAccount's.
//
// The dispatcher decides under its lock and adds tasks to queue(). These call
// the other methods, one at a time and in that order, without the lock. The
// tokenizer must outlive it.

#ifndef COORDINATOR_DISPATCH_ANSWER_H_
#define COORDINATOR_DISPATCH_ANSWER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/dispatch/chunk_tracer.h"
#include "coordinator/dispatch/observer.h"
#include "coordinator/dispatch/output_queue.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/request_account.h"
#include "coordinator/dispatch/text_stream.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

class Answer {
 public:
  Answer(std::shared_ptr<const RequestSpec> request,
         const tokenizer::Tokenizer* tokenizer,
         std::shared_ptr<ResponseSink> sink, Observer* observer)
      : request_(std::move(request)),
        sink_(std::move(sink)),
        observer_(observer),
        text_(request_, tokenizer),
        account_(request_) {
    if (request_->trace_chunks) {
      tracer_.emplace(request_->wants_draft());
    }
  }

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
  void OnMoved(const Placement& placement);
  void OnTail(const speculation::Tail& tail) {
    observer_->OnTail(session_id_, tail);
  }
  // Its target has opened it and found so much of the prompt cached. Only what
  // the first one says counts: a later one is opened with what was generated,
  // too.
  void OnOpened(int cached_tokens);
  // The same target had so many tokens more of it.
  void OnCached(int tokens);
  // The next ones of its prompt, where asked for: all of them before the first
  // verdict.
  void OnPromptLogprobs(absl::Span<const TokenLogprobs> logprobs);
  // Counts a worker's time and keeps the span if the request asked for a trace.
  void OnSpan(WorkerRole role, const SpanRecord& span, int64_t clock_offset_ns);
  // What its length policy has to go without on its draft.
  void OnPolicyNote(std::string note) { policy_note_ = std::move(note); }

  using Applied = AppliedVerdict;
  // Emits its text, ends at a stop string. After the end nothing is shown.
  //   logprobs [tokens of the verdict], empty if not asked for
  void Show(const speculation::Verdict& verdict,
            absl::Span<const TokenLogprobs> logprobs, const Applied& applied);
  // Nothing more of that step will come: its target is gone.
  void EndHeldStep(const speculation::Verdict& step);
  void OnWorkerLeft(TraceLane lane) { account_.OnWorkerLeft(std::move(lane)); }

  uint64_t session_id() const { return session_id_; }
  bool finished() const { return text_.finish().has_value(); }

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
  // Of its tokens, after those that it resumed.
  int first_index() const {
    return static_cast<int>(request_->resumed_ids().size());
  }

  const std::shared_ptr<const RequestSpec> request_;
  const std::shared_ptr<ResponseSink> sink_;
  Observer* const observer_;
  OutputQueue queue_;
  std::atomic<int> untold_chunks_{0};
  std::atomic<bool> stopped_by_text_{false};
  TextStream text_;
  RequestAccount account_;
  absl::optional<ChunkTracer> tracer_;   // where chunks are traced
  std::vector<TokenLogprobs> logprobs_;  // of first_index() and on
  std::vector<TokenLogprobs> prompt_logprobs_;
  uint64_t session_id_ = 0;
  std::string numerics_id_;  // of its targets
  std::string policy_note_;
  bool abandoned_ = false;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_ANSWER_H_
