#include "coordinator/dispatch/answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nacre::coordinator {

void Answer::Refuse(const absl::Status& status) {
  sink_->OnError(status);
  observer_->OnRefused(*request_, status);
}

void Answer::OnStarted(uint64_t session_id, const Placement& placement,
                       const std::string& numerics_id, int64_t start_ns) {
  session_id_ = session_id;
  numerics_id_ = numerics_id;
  text_.Resume();
  account_.OnStarted(start_ns);
  if (tracer_.has_value()) tracer_->OnPlaced(placement);
  observer_->OnStarted(session_id, *request_, placement,
                       start_ns - request_->arrival_ns);
}

void Answer::OnMoved(const Placement& placement) {
  if (tracer_.has_value()) tracer_->OnPlaced(placement);
  observer_->OnMoved(session_id_, placement);
}

void Answer::Show(const speculation::Verdict& verdict,
                  absl::Span<const TokenLogprobs> logprobs,
                  const Applied& applied) {
  if (finished()) return;
  if (const auto cut =
          CutAtMaxTokens(verdict, request_->max_tokens,
                         static_cast<int>(text_.token_ids().size()))) {
    Show(*cut, logprobs, applied);
    return;
  }
  TextStream::Piece piece = text_.Append(verdict.token_ids, verdict.finish);
  Chunk chunk;
  chunk.first_index = piece.first_index;
  if (chunk.first_index == first_index()) {
    chunk.numerics_id = numerics_id_;
    if (request_->omit_streamed) {
      chunk.prompt_logprobs = std::move(prompt_logprobs_);
    } else if (request_->stream) {
      chunk.prompt_logprobs = prompt_logprobs_;
    }
  }
  chunk.token_ids = std::move(piece.token_ids);
  chunk.text = std::move(piece.text);
  if (request_->logprobs.has_value()) {
    const size_t shown = std::min(chunk.token_ids.size(), logprobs.size());
    chunk.logprobs.assign(logprobs.begin(), logprobs.begin() + shown);
    logprobs_.insert(logprobs_.end(), chunk.logprobs.begin(),
                     chunk.logprobs.end());
  }
  const int num_shown = static_cast<int>(chunk.token_ids.size());
  if (tracer_.has_value()) {
    chunk.trace = tracer_->Take(verdict, std::move(piece.text_bytes));
  }
  if (request_->stream) {
    sink_->OnChunk(chunk);
    --untold_chunks_;
  }
  account_.OnShown(applied);
  if (finished() && verdict.finish == speculation::FinishReason::kNone) {
    stopped_by_text_ = true;
  }
  const speculation::Verdict& step =
      applied.step.has_value() ? *applied.step : verdict;
  // A stop string may be in what came before a row that is held.
  if (finished() && !applied.step_ended) {
    account_.EndStepEarly(step);
  } else if (!applied.step_ended) {
    observer_->OnAccepted(session_id_, num_shown);
    return;
  }
  account_.CountRound(step);
  observer_->OnRound(session_id_, step, num_shown);
}

void Answer::EndHeldStep(const speculation::Verdict& step) {
  if (finished()) return;
  account_.CountRound(step);
  observer_->OnRound(session_id_, step, /*num_shown=*/0);
}

void Answer::OnOpened(int cached_tokens) {
  const absl::optional<int> counted = account_.OnOpened(cached_tokens);
  if (counted.has_value()) observer_->OnOpened(session_id_, *counted);
}

void Answer::OnCached(int tokens) {
  const int more = account_.OnCached(tokens);
  if (more > 0) observer_->OnCached(session_id_, more);
}

void Answer::OnPromptLogprobs(absl::Span<const TokenLogprobs> logprobs) {
  prompt_logprobs_.insert(prompt_logprobs_.end(), logprobs.begin(),
                          logprobs.end());
}

void Answer::OnSpan(WorkerRole role, const SpanRecord& span,
                    int64_t clock_offset_ns) {
  account_.OnSpan(role, span);
  if (tracer_.has_value()) tracer_->OnSpan(role, span, clock_offset_ns);
  observer_->OnSpan(session_id_, role, span, clock_offset_ns);
}

void Answer::Complete(End end) {
  Completion completion;
  completion.finish = *text_.finish();
  completion.stop_match = text_.stop_match();
  completion.text = text_.text();
  completion.token_ids = text_.token_ids();
  completion.numerics_id = numerics_id_;
  if (request_->method != speculation::Method::kAr) {
    completion.policy = request_->policy.text();
    if (!policy_note_.empty()) {
      completion.policy += absl::StrCat(" (", policy_note_, ")");
    }
  }
  completion.cost_ratio = end.cost_ratio;
  completion.logprobs = logprobs_;
  completion.prompt_logprobs = prompt_logprobs_;
  account_.Close(static_cast<int64_t>(text_.token_ids().size()) - first_index(),
                 end.now_ns, std::move(end.target), std::move(end.draft),
                 &completion);
  if (tracer_.has_value() && !request_->trace) {
    completion.trace = tracer_->TakeLanes();
  }
  // Counted first: a client that has its answer finds it in the metrics.
  observer_->OnFinished(session_id_, *request_, absl::OkStatus(), &completion);
  sink_->OnComplete(*request_, completion);
}

void Answer::Fail(const absl::Status& status, End end) {
  if (finished() && !abandoned_) {
    Complete(std::move(end));
    return;
  }
  observer_->OnFinished(session_id_, *request_, status,
                        /*completion=*/nullptr);
  sink_->OnError(status);
}

void Answer::Abandon() {
  abandoned_ = true;
  sink_->Abandon();
}

}  // namespace nacre::coordinator
