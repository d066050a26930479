#include "coordinator/answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;

// Enough of the prompt to know whether the first token keeps its leading space;
// a long prompt is not decoded.
constexpr size_t kContextTokens = 64;

// Of one worker in a request's trace; those behind are left out.
constexpr size_t kMaxTraceSpans = 1 << 18;

// A sum of what workers say: it may be beyond any number of nanoseconds.
int64_t ToNs(double sum_ns) {
  return static_cast<int64_t>(std::min(sum_ns, 9e18));
}

Finish FromFinishReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return Finish::kEos;
    case FinishReason::kStop:
      return Finish::kStop;
    default:
      return Finish::kLength;
  }
}

}  // namespace

absl::optional<speculation::Verdict> CutAtMaxTokens(
    const speculation::Verdict& verdict, int max_tokens, int generated) {
  const size_t left = static_cast<size_t>(max_tokens - generated);
  const size_t size = verdict.token_ids.size();
  if (size < left || (size == left && verdict.finish != FinishReason::kNone)) {
    return absl::nullopt;
  }
  speculation::Verdict cut = verdict;
  cut.token_ids.resize(left);
  cut.finish = FinishReason::kLength;
  return cut;
}

Answer::Text::Text(const RequestSpec& request,
                   const tokenizer::Tokenizer* tokenizer)
    : decoder(tokenizer, request.skip_special_tokens),
      stop_matcher(request.stop, request.include_stop_string) {
  const absl::Span<const int32_t> prompt = request.prompt_ids;
  decoder.SkipContext(
      prompt.last(std::min<size_t>(kContextTokens, prompt.size())));
}

void Answer::Refuse(const absl::Status& status) {
  sink_->OnError(status);
  observer_->OnRefused(*request_, status);
}

void Answer::OnStarted(uint64_t session_id, const Placement& placement,
                       const std::string& numerics_id, int64_t start_ns) {
  session_id_ = session_id;
  numerics_id_ = numerics_id;
  start_ns_ = start_ns;
  observer_->OnStarted(session_id, *request_, placement,
                       start_ns - request_->arrival_ns);
}

void Answer::Show(const speculation::Verdict& verdict,
                  absl::Span<const TokenLogprobs> logprobs,
                  const Applied& applied) {
  if (finished()) return;
  if (const auto cut = CutAtMaxTokens(verdict, request_->max_tokens,
                                      static_cast<int>(token_ids_.size()))) {
    Show(*cut, logprobs, applied);
    return;
  }
  if (text_state_ == nullptr) {
    text_state_ = std::make_unique<Text>(*request_, tokenizer_);
  }
  if (first_token_ns_ == 0) first_token_ns_ = applied.now_ns;
  Chunk chunk;
  chunk.first_index = static_cast<int>(token_ids_.size());
  if (chunk.first_index == 0) chunk.numerics_id = numerics_id_;
  // The token that ends the text is, like a stop string, no part of it.
  const bool ends_with_token = verdict.finish == FinishReason::kEos ||
                               verdict.finish == FinishReason::kStop;
  chunk.text =
      AppendTokens(verdict.token_ids,
                   ends_with_token && !request_->include_stop_string ? 1 : 0);
  if (!finished() && verdict.finish != FinishReason::kNone) {
    finish_ = FromFinishReason(verdict.finish);
    chunk.text += FlushText();
  }
  chunk.token_ids.assign(token_ids_.begin() + chunk.first_index,
                         token_ids_.end());
  if (request_->logprobs.has_value()) {
    const size_t shown = std::min(chunk.token_ids.size(), logprobs.size());
    chunk.logprobs.assign(logprobs.begin(), logprobs.begin() + shown);
    logprobs_.insert(logprobs_.end(), chunk.logprobs.begin(),
                     chunk.logprobs.end());
  }
  text_ += chunk.text;
  const int num_shown = static_cast<int>(chunk.token_ids.size());
  if (request_->stream) {
    sink_->OnChunk(chunk);
    --untold_chunks_;
  }
  stats_ = applied.stats;
  alpha_ = applied.alpha;
  window_ = applied.window;
  if (finished() && verdict.finish == FinishReason::kNone) {
    stopped_by_text_ = true;
  }
  const speculation::Verdict& step =
      applied.step.has_value() ? *applied.step : verdict;
  // A stop string may be in what came before a row that is held.
  if (finished() && !applied.step_ended) {
    speculation::SessionSchedule::Count(
        step, request_->method != speculation::Method::kAr, &stats_);
  } else if (!applied.step_ended) {
    observer_->OnAccepted(session_id_, num_shown);
    return;
  }
  CountRound(step);
  observer_->OnRound(session_id_, step, num_shown);
}

void Answer::EndHeldStep(const speculation::Verdict& step) {
  if (finished()) return;
  CountRound(step);
  observer_->OnRound(session_id_, step, /*num_shown=*/0);
}

std::string Answer::AppendTokens(const std::vector<int32_t>& token_ids,
                                 size_t num_silent) {
  std::string text;
  const size_t num_spoken = token_ids.size() - num_silent;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    const int32_t token_id = token_ids[i];
    token_ids_.push_back(token_id);
    if (i >= num_spoken) continue;
    std::string piece = text_state_->decoder.Append({&token_id, 1});
    // What must not end the text yet is not compared with a stop string.
    if (static_cast<int>(token_ids_.size()) <= request_->min_tokens) {
      text += piece;
      continue;
    }
    auto result = text_state_->stop_matcher.Push(piece);
    text += result.emit;
    if (result.matched.has_value()) {
      finish_ = Finish::kStop;
      stop_match_ = *result.matched;
      break;
    }
  }
  return text;
}

std::string Answer::FlushText() {
  std::string rest = text_state_->decoder.Flush();
  if (static_cast<int>(token_ids_.size()) <= request_->min_tokens) return rest;
  auto result = text_state_->stop_matcher.Push(rest);
  if (!result.matched.has_value()) {
    return result.emit + text_state_->stop_matcher.Flush();
  }
  finish_ = Finish::kStop;
  stop_match_ = *result.matched;
  return result.emit;
}

void Answer::CountRound(const speculation::Verdict& step) {
  const size_t accepted = static_cast<size_t>(std::max(0, step.accepted));
  if (acceptance_histogram_.size() <= accepted) {
    acceptance_histogram_.resize(accepted + 1);
  }
  ++acceptance_histogram_[accepted];
  if (request_->detailed_stats) {
    rounds_.push_back({step.window, step.accepted});
  }
}

void Answer::OnOpened(int cached_tokens) {
  if (cached_tokens_.has_value()) return;
  cached_tokens_ = std::clamp(cached_tokens, 0,
                              static_cast<int>(request_->prompt_ids.size()));
  counts_cached_ = true;
  observer_->OnOpened(session_id_, *cached_tokens_);
}

void Answer::OnCached(int tokens) {
  if (!counts_cached_) return;
  const int more = std::clamp(
      tokens, 0,
      static_cast<int>(request_->prompt_ids.size()) - *cached_tokens_);
  if (more == 0) return;
  *cached_tokens_ += more;
  observer_->OnCached(session_id_, more);
}

void Answer::OnSpan(WorkerRole role, const SpanRecord& span,
                    int64_t clock_offset_ns) {
  const double share = span.batch_rows > 0
                           ? static_cast<double>(span.rows) / span.batch_rows
                           : 1.0;
  double& busy = role == WorkerRole::kDraft ? draft_busy_ns_ : target_busy_ns_;
  switch (span.kind) {
    case SpanRecord::Kind::kPrefill:
    case SpanRecord::Kind::kDraft:
      busy += share * span.duration_ns;
      break;
    case SpanRecord::Kind::kVerify:
      busy += share * span.duration_ns;
      // Only where nothing was waited for between the two steps.
      if (request_->trace && last_step_end_ns_ > 0 &&
          span.start_ns > last_step_end_ns_ &&
          step_gaps_ns_.size() < kMaxTraceSpans) {
        step_gaps_ns_.push_back(span.start_ns - last_step_end_ns_);
      }
      last_step_end_ns_ = span.start_ns + span.duration_ns;
      break;
    case SpanRecord::Kind::kWaitDraftTokens:
      target_wait_ns_ += span.duration_ns;
      last_step_end_ns_ = 0;
      break;
    case SpanRecord::Kind::kWaitVerdict:
      draft_wait_ns_ += span.duration_ns;
      break;
    case SpanRecord::Kind::kWaitAcknowledge:
      last_step_end_ns_ = 0;
      break;
    case SpanRecord::Kind::kRollback:
      break;
    case SpanRecord::Kind::kHidden:
      hidden_bytes_ = AddCapped(hidden_bytes_, span.bytes);
      hidden_ns_ = AddCapped(hidden_ns_, span.duration_ns);
      break;
  }
  std::vector<SpanRecord>& spans =
      role == WorkerRole::kDraft ? draft_spans_ : target_spans_;
  if (request_->trace && spans.size() < kMaxTraceSpans) spans.push_back(span);
  observer_->OnSpan(session_id_, role, span, clock_offset_ns);
}

void Answer::OnWorkerLeft(TraceLane lane) {
  const bool is_draft = lane.role == WorkerRole::kDraft;
  lane.spans = std::exchange(is_draft ? draft_spans_ : target_spans_, {});
  if (!lane.spans.empty()) left_lanes_.push_back(std::move(lane));
  if (is_draft) return;
  // The next target has another clock and is opened with everything committed.
  last_step_end_ns_ = 0;
  counts_cached_ = false;
}

void Answer::Complete(End end) {
  Completion completion;
  completion.finish = *finish_;
  completion.stop_match = stop_match_;
  completion.text = text_;
  completion.token_ids = token_ids_;
  completion.numerics_id = numerics_id_;
  completion.total_ns = end.now_ns - request_->arrival_ns;
  completion.queue_ns = start_ns_ - request_->arrival_ns;
  completion.time_to_first_token_ns = first_token_ns_ - request_->arrival_ns;
  completion.draft_busy_ns = ToNs(draft_busy_ns_);
  completion.draft_wait_ns = ToNs(draft_wait_ns_);
  completion.target_busy_ns = ToNs(target_busy_ns_);
  completion.target_wait_ns = ToNs(target_wait_ns_);
  completion.hidden_bytes = hidden_bytes_;
  completion.hidden_ns = hidden_ns_;
  completion.cached_tokens = cached_tokens_.value_or(0);
  completion.stats = stats_;
  // What a stop string cut off was never committed as far as the user goes.
  completion.stats.committed = static_cast<int64_t>(token_ids_.size());
  completion.window = window_;
  if (request_->method != speculation::Method::kAr) {
    completion.policy = request_->policy.text();
    if (!policy_note_.empty()) {
      completion.policy += absl::StrCat(" (", policy_note_, ")");
    }
  }
  completion.alpha = alpha_;
  completion.cost_ratio = end.cost_ratio;
  completion.step_gaps_ns = step_gaps_ns_;
  completion.logprobs = logprobs_;
  completion.acceptance_histogram = acceptance_histogram_;
  completion.rounds = rounds_;
  if (request_->trace) {
    end.target.spans = std::move(target_spans_);
    completion.trace.push_back(std::move(end.target));
    if (end.draft.has_value()) {
      end.draft->spans = std::move(draft_spans_);
      completion.trace.push_back(*std::move(end.draft));
    }
    for (TraceLane& lane : left_lanes_) {
      completion.trace.push_back(std::move(lane));
    }
  }
  sink_->OnComplete(*request_, completion);
  observer_->OnFinished(session_id_, *request_, absl::OkStatus(), &completion);
}

void Answer::Fail(const absl::Status& status, End end) {
  if (finished() && !abandoned_) {
    Complete(std::move(end));
    return;
  }
  sink_->OnError(status);
  observer_->OnFinished(session_id_, *request_, status,
                        /*completion=*/nullptr);
}

void Answer::Abandon() {
  abandoned_ = true;
  sink_->Abandon();
}

}  // namespace nacre::coordinator
