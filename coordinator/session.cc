#include "coordinator/session.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::SessionSchedule;

// A client with more chunks than this on their way is slow.
constexpr int kMaxPendingChunks = 32;
constexpr size_t kContextTokens = 64;

SessionSchedule::Options ScheduleOptions(uint64_t id,
                                         const RequestSpec& request,
                                         double prior_alpha) {
  SessionSchedule::Options options;
  options.method = request.method;
  options.window = request.window;
  options.prior_alpha = prior_alpha;
  options.policy_length = request.policy.max_length();
  options.follows_load =
      request.policy.kind() == speculation::PolicyKind::kLoad;
  options.verification = request.verification;
  options.always_drafts = id % speculation::kMeasuredSessions == 0;
  return options;
}

uint64_t HiddenChannel(const RequestSpec& request) {
  if (request.method == speculation::Method::kAr ||
      request.policy.kind() != speculation::PolicyKind::kCaliTs) {
    return 0;
  }
  std::random_device device;
  uint64_t channel = 0;
  while (channel == 0) channel = (uint64_t{device()} << 32) | device();
  return channel;
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

Session::Session(uint64_t id, RequestSpec request, double prior_alpha,
                 const tokenizer::Tokenizer* tokenizer,
                 std::shared_ptr<ResponseSink> sink, int64_t start_ns)
    : id_(id),
      request_(std::move(request)),
      hidden_channel_(HiddenChannel(request_)),
      schedule_(ScheduleOptions(id, request_, prior_alpha),
                request_.prompt_ids),
      sink_(std::move(sink)),
      decoder_(tokenizer, request_.skip_special_tokens),
      stop_matcher_(request_.stop, request_.include_stop_string),
      acknowledged_(static_cast<int>(request_.prompt_ids.size())),
      arrival_ns_(request_.arrival_ns != 0 ? request_.arrival_ns : start_ns),
      start_ns_(start_ns) {
  // Enough of the prompt to know whether the first token keeps its leading
  // space; a long prompt is not decoded.
  const absl::Span<const int32_t> prompt = request_.prompt_ids;
  decoder_.SkipContext(
      prompt.last(std::min<size_t>(kContextTokens, prompt.size())));
}

absl::optional<speculation::Commit> Session::ApplyVerdict(
    const speculation::Verdict& verdict) {
  speculation::Commit commit;
  if (schedule_.OnVerdict(verdict, &commit) !=
      SessionSchedule::VerdictOutcome::kApplied) {
    return absl::nullopt;
  }
  return commit;
}

void Session::ShowVerdict(const speculation::Verdict& verdict, int64_t now_ns,
                          absl::Span<const TokenLogprobs> logprobs) {
  if (first_token_ns_ == 0) first_token_ns_ = now_ns;
  Chunk chunk;
  chunk.first_index = static_cast<int>(token_ids_.size());
  // The token that ends the text is, like a stop string, no part of it.
  const bool ends_with_token = verdict.finish == FinishReason::kEos ||
                               verdict.finish == FinishReason::kStop;
  chunk.text =
      AppendTokens(verdict.token_ids,
                   ends_with_token && !request_.include_stop_string ? 1 : 0);
  if (!finished() && verdict.finish != FinishReason::kNone) {
    finish_ = FromFinishReason(verdict.finish);
    chunk.text += FlushText();
  }
  chunk.token_ids.assign(token_ids_.begin() + chunk.first_index,
                         token_ids_.end());
  if (request_.logprobs.has_value()) {
    const size_t shown = std::min(chunk.token_ids.size(), logprobs.size());
    chunk.logprobs.assign(logprobs.begin(), logprobs.begin() + shown);
    logprobs_.insert(logprobs_.end(), chunk.logprobs.begin(),
                     chunk.logprobs.end());
  }
  text_ += chunk.text;
  if (request_.stream) sink_->OnChunk(chunk);
  // A stop string may be in what came before a row that is held.
  if (finished()) schedule_.EndStep();
  if (const auto* step = schedule_.ended_step()) CountRound(*step);
}

const speculation::Verdict* Session::EndHeldStep() {
  if (schedule_.ended_step() != nullptr) return nullptr;
  schedule_.EndStep();
  CountRound(*schedule_.ended_step());
  return schedule_.ended_step();
}

std::string Session::AppendTokens(const std::vector<int32_t>& token_ids,
                                  size_t num_silent) {
  std::string text;
  const size_t num_spoken = token_ids.size() - num_silent;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    const int32_t token_id = token_ids[i];
    token_ids_.push_back(token_id);
    if (i >= num_spoken) continue;
    // What must not end the text yet is not compared with a stop string.
    if (static_cast<int>(token_ids_.size()) <= request_.min_tokens) {
      text += decoder_.Append({&token_id, 1});
      continue;
    }
    auto result = stop_matcher_.Push(decoder_.Append({&token_id, 1}));
    text += result.emit;
    if (result.matched.has_value()) {
      finish_ = Finish::kStop;
      stop_match_ = *result.matched;
      break;
    }
  }
  return text;
}

void Session::CountRound(const speculation::Verdict& step) {
  const size_t accepted = static_cast<size_t>(std::max(0, step.accepted));
  if (acceptance_histogram_.size() <= accepted) {
    acceptance_histogram_.resize(accepted + 1);
  }
  ++acceptance_histogram_[accepted];
  if (request_.detailed_stats) {
    rounds_.push_back({step.window, step.accepted});
  }
}

std::string Session::FlushText() {
  if (static_cast<int>(token_ids_.size()) <= request_.min_tokens) {
    return decoder_.Flush();
  }
  auto result = stop_matcher_.Push(decoder_.Flush());
  if (!result.matched.has_value()) return result.emit + stop_matcher_.Flush();
  finish_ = Finish::kStop;
  stop_match_ = *result.matched;
  return result.emit;
}

absl::optional<int> Session::OnOpened(int cached_tokens) {
  if (cached_tokens_.has_value()) return absl::nullopt;
  cached_tokens_ = std::clamp(cached_tokens, 0, schedule_.prompt_length());
  counts_cached_ = true;
  return cached_tokens_;
}

int Session::OnCached(int tokens) {
  if (!counts_cached_) return 0;
  const int more =
      std::clamp(tokens, 0, schedule_.prompt_length() - *cached_tokens_);
  *cached_tokens_ += more;
  return more;
}

void Session::OnSpan(WorkerRole role, const SpanRecord& span) {
  const double share = span.batch_rows > 0
                           ? static_cast<double>(span.rows) / span.batch_rows
                           : 1.0;
  double& busy = role == WorkerRole::kDraft ? draft_busy_ns_ : target_busy_ns_;
  switch (span.kind) {
    case SpanRecord::Kind::kPrefill:
      busy += share * span.duration_ns;
      last_prefill_start_ns_ = span.start_ns;
      break;
    case SpanRecord::Kind::kDraft:
      busy += share * span.duration_ns;
      break;
    case SpanRecord::Kind::kVerify:
      busy += share * span.duration_ns;
      // A first step may share its forward with rows of its own prompt.
      if (span.start_ns != last_prefill_start_ns_) {
        const int others = span.batch_rows - span.rows;
        if (other_rows_ < 0) other_rows_ = others;
        other_rows_ += speculation::kRowsWeight * (others - other_rows_);
        own_rows_ += speculation::kRowsWeight * (span.rows - own_rows_);
      }
      // Only where nothing was waited for between the two steps.
      if (request_.trace && last_step_end_ns_ > 0 &&
          span.start_ns > last_step_end_ns_) {
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
      hidden_bytes_ += span.bytes;
      hidden_ns_ += span.duration_ns;
      break;
  }
  if (request_.trace) {
    (role == WorkerRole::kDraft ? draft_spans_ : target_spans_).push_back(span);
  }
}

absl::optional<int> Session::TakeAcknowledgement() {
  const int length = static_cast<int>(schedule_.committed().size());
  held_back_ = false;
  if (length - acknowledged_ < speculation::kAcknowledgeEvery) {
    return absl::nullopt;
  }
  if (request_.stream && sink_->pending_chunks() > kMaxPendingChunks) {
    held_back_ = true;
    return absl::nullopt;
  }
  acknowledged_ = length;
  return length;
}

void Session::OnWorkerLeft(TraceLane lane) {
  const bool is_draft = lane.role == WorkerRole::kDraft;
  lane.spans = std::exchange(is_draft ? draft_spans_ : target_spans_, {});
  if (!lane.spans.empty()) left_lanes_.push_back(std::move(lane));
  if (is_draft) return;
  // The next target has another clock and other company, and is opened with
  // everything committed.
  last_step_end_ns_ = 0;
  last_prefill_start_ns_ = 0;
  counts_cached_ = false;
  other_rows_ = -1;
  acknowledged_ = static_cast<int>(schedule_.committed().size());
}

Completion Session::Complete(TraceLane target, absl::optional<TraceLane> draft,
                             double cost_ratio, int64_t now_ns) {
  Completion completion;
  completion.finish = *finish_;
  completion.stop_match = stop_match_;
  completion.text = text_;
  completion.token_ids = token_ids_;
  completion.total_ns = now_ns - arrival_ns_;
  completion.queue_ns = queue_ns();
  completion.time_to_first_token_ns = first_token_ns_ - arrival_ns_;
  completion.draft_busy_ns = static_cast<int64_t>(draft_busy_ns_);
  completion.draft_wait_ns = static_cast<int64_t>(draft_wait_ns_);
  completion.target_busy_ns = static_cast<int64_t>(target_busy_ns_);
  completion.target_wait_ns = static_cast<int64_t>(target_wait_ns_);
  completion.hidden_bytes = hidden_bytes_;
  completion.hidden_ns = hidden_ns_;
  completion.cached_tokens = cached_tokens_.value_or(0);
  completion.stats = schedule_.stats();
  // What a stop string cut off was never committed as far as the user goes.
  completion.stats.committed = static_cast<int64_t>(token_ids_.size());
  completion.window = schedule_.plan().window;
  if (schedule_.wants_draft()) {
    completion.policy = request_.policy.text();
    if (!policy_note_.empty()) {
      completion.policy += absl::StrCat(" (", policy_note_, ")");
    }
  }
  completion.alpha = schedule_.alpha();
  completion.cost_ratio = cost_ratio;
  completion.step_gaps_ns = step_gaps_ns_;
  completion.logprobs = logprobs_;
  completion.acceptance_histogram = acceptance_histogram_;
  completion.rounds = rounds_;
  if (request_.trace) {
    target.spans = std::move(target_spans_);
    completion.trace.push_back(std::move(target));
    if (draft.has_value()) {
      draft->spans = std::move(draft_spans_);
      completion.trace.push_back(*std::move(draft));
    }
    for (TraceLane& lane : left_lanes_) {
      completion.trace.push_back(std::move(lane));
    }
  }
  sink_->OnComplete(request_, completion);
  return completion;
}

}  // namespace nacre::coordinator
