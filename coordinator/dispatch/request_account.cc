#include "coordinator/dispatch/request_account.h"

#include <algorithm>
#include <utility>

namespace nacre::coordinator {
namespace {

// Of one worker in a request's trace; later ones are left out.
constexpr size_t kMaxTraceSpans = 1 << 18;

// A sum of what workers say: it may be beyond any number of nanoseconds.
int64_t ToNs(double sum_ns) {
  return static_cast<int64_t>(std::min(sum_ns, 9e18));
}

}  // namespace

absl::optional<speculation::Verdict> CutAtMaxTokens(
    const speculation::Verdict& verdict, int max_tokens, int generated) {
  const size_t left = static_cast<size_t>(max_tokens - generated);
  const size_t size = verdict.token_ids.size();
  if (size < left ||
      (size == left && verdict.finish != speculation::FinishReason::kNone)) {
    return absl::nullopt;
  }
  speculation::Verdict cut = verdict;
  cut.token_ids.resize(left);
  cut.finish = speculation::FinishReason::kLength;
  return cut;
}

absl::optional<int> RequestAccount::OnOpened(int cached_tokens) {
  if (cached_tokens_.has_value()) return absl::nullopt;
  cached_tokens_ = std::clamp(cached_tokens, 0,
                              static_cast<int>(request_->prompt_ids.size()));
  counts_cached_ = true;
  return cached_tokens_;
}

int RequestAccount::OnCached(int tokens) {
  if (!counts_cached_) return 0;
  const int more = std::clamp(
      tokens, 0,
      static_cast<int>(request_->prompt_ids.size()) - *cached_tokens_);
  *cached_tokens_ += more;
  return more;
}

void RequestAccount::OnSpan(WorkerRole role, const SpanRecord& span) {
  const double share = span.batch_rows > 0
                           ? static_cast<double>(span.rows) / span.batch_rows
                           : 1.0;
  Time& time = TimeOf(role);
  switch (span.kind) {
    case SpanRecord::Kind::kPrefill:
    case SpanRecord::Kind::kDraft:
      time.busy_ns += share * span.duration_ns;
      break;
    case SpanRecord::Kind::kVerify:
      time.busy_ns += share * span.duration_ns;
      CountStep(span);
      break;
    case SpanRecord::Kind::kWaitDraftTokens:
      target_.wait_ns += span.duration_ns;
      if (span.after_miss) wait_after_miss_ns_ += span.duration_ns;
      last_step_end_ns_ = 0;
      break;
    case SpanRecord::Kind::kWaitVerdict:
      draft_.wait_ns += span.duration_ns;
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
  if (request_->trace && time.spans.size() < kMaxTraceSpans) {
    time.spans.push_back(span);
  }
}

void RequestAccount::CountStep(const SpanRecord& span) {
  // Only where nothing was waited for between the two steps.
  if (request_->trace && last_step_end_ns_ > 0 &&
      span.start_ns > last_step_end_ns_ &&
      step_gaps_ns_.size() < kMaxTraceSpans) {
    step_gaps_ns_.push_back(span.start_ns - last_step_end_ns_);
  }
  last_step_end_ns_ = span.start_ns + span.duration_ns;
}

void RequestAccount::OnWorkerLeft(TraceLane lane) {
  const bool is_draft = lane.role == WorkerRole::kDraft;
  lane.spans = std::exchange(TimeOf(lane.role).spans, {});
  if (!lane.spans.empty()) left_lanes_.push_back(std::move(lane));
  if (is_draft) return;
  // The next target has another clock and is opened with everything committed.
  last_step_end_ns_ = 0;
  counts_cached_ = false;
}

void RequestAccount::OnShown(const AppliedVerdict& applied) {
  if (first_token_ns_ == 0) first_token_ns_ = applied.now_ns;
  stats_ = applied.stats;
  alpha_ = applied.alpha;
  window_ = applied.window;
}

void RequestAccount::EndStepEarly(const speculation::Verdict& step) {
  speculation::SessionSchedule::Count(step, request_->wants_draft(), &stats_);
}

void RequestAccount::CountRound(const speculation::Verdict& step) {
  const size_t accepted = static_cast<size_t>(std::max(0, step.accepted));
  if (acceptance_histogram_.size() <= accepted) {
    acceptance_histogram_.resize(accepted + 1);
  }
  ++acceptance_histogram_[accepted];
  if (request_->detailed_stats) {
    rounds_.push_back({step.drafted(), step.accepted});
  }
}

void RequestAccount::Close(int64_t num_tokens, int64_t now_ns, TraceLane target,
                           absl::optional<TraceLane> draft,
                           Completion* completion) {
  completion->total_ns = now_ns - request_->arrival_ns;
  completion->queue_ns = start_ns_ - request_->arrival_ns;
  completion->time_to_first_token_ns = first_token_ns_ - request_->arrival_ns;
  completion->draft_busy_ns = ToNs(draft_.busy_ns);
  completion->draft_wait_ns = ToNs(draft_.wait_ns);
  completion->target_busy_ns = ToNs(target_.busy_ns);
  completion->target_wait_ns = ToNs(target_.wait_ns);
  completion->target_wait_after_miss_ns = ToNs(wait_after_miss_ns_);
  completion->hidden_bytes = hidden_bytes_;
  completion->hidden_ns = hidden_ns_;
  completion->cached_tokens = cached_tokens_.value_or(0);
  completion->stats = stats_;
  // What a stop string cut off was never committed as far as the user goes.
  completion->stats.committed = num_tokens;
  completion->window = window_;
  completion->alpha = alpha_;
  completion->step_gaps_ns = step_gaps_ns_;
  completion->acceptance_histogram = acceptance_histogram_;
  completion->rounds = rounds_;
  if (!request_->trace) return;
  target.spans = std::move(target_.spans);
  completion->trace.push_back(std::move(target));
  if (draft.has_value()) {
    draft->spans = std::move(draft_.spans);
    completion->trace.push_back(*std::move(draft));
  }
  for (TraceLane& lane : left_lanes_) {
    completion->trace.push_back(std::move(lane));
  }
}

}  // namespace nacre::coordinator
