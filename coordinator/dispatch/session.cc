#include "coordinator/dispatch/session.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nacre::coordinator {
namespace {

using speculation::SessionSchedule;

// A client with more chunks than this on their way is slow.
constexpr int kMaxPendingChunks = 32;

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
  options.ablation = request.ablation;
  options.tree = request.tree;
  options.draft_rows = request.draft_rows;
  options.tree_rows = request.tree_rows;
  options.expects_draft = request.expects_draft;
  options.always_drafts = id % speculation::kMeasuredSessions == 0;
  return options;
}

}  // namespace

Session::Session(uint64_t id, std::shared_ptr<SessionCell> cell,
                 std::shared_ptr<Answer> answer, TensorChannels channels,
                 double prior_alpha)
    : id_(id),
      cell_(std::move(cell)),
      answer_(std::move(answer)),
      channels_(channels),
      schedule_(ScheduleOptions(id, request(), prior_alpha),
                static_cast<int>(request().prompt_ids.size()),
                request().resumed_ids()),
      acknowledged_(schedule_.committed_length()),
      target_worker(cell_->target_worker),
      draft_worker(cell_->draft_worker) {
  failover.request = cell_->request;
  cell_->generated = schedule_.generated();
}

absl::optional<speculation::Commit> Session::ApplyVerdict(
    const speculation::Verdict& verdict) {
  if (const auto cut = CutAtMaxTokens(verdict, request().max_tokens,
                                      schedule_.generated())) {
    return ApplyVerdict(*cut);
  }
  speculation::Commit commit;
  if (schedule_.OnVerdict(verdict, &commit) !=
      SessionSchedule::VerdictOutcome::kApplied) {
    return absl::nullopt;
  }
  cell_->generated = schedule_.generated();
  return commit;
}

bool Session::ApplyPromptLogprobs(const wire::PromptLogprobs& told) {
  const std::vector<int32_t>& prompt = request().prompt_ids;
  const size_t count = told.logprobs.size();
  if (!request().prompt_logprobs.has_value() || count == 0 ||
      told.first_position != 1 + prompt_logprobs_ ||
      count > prompt.size() - static_cast<size_t>(told.first_position)) {
    return false;
  }
  const auto begin = prompt.begin() + told.first_position;
  if (!std::equal(told.logprobs.begin(), told.logprobs.end(), begin,
                  [](const TokenLogprobs& token, int32_t id) {
                    return token.token_id == id;
                  })) {
    return false;
  }
  prompt_logprobs_ += static_cast<int>(count);
  return true;
}

bool Session::LacksPromptLogprobs() const {
  return request().prompt_logprobs.has_value() &&
         prompt_logprobs_ + 1 < static_cast<int>(request().prompt_ids.size());
}

Answer::Applied Session::Applied(const speculation::Verdict& verdict,
                                 int64_t now_ns) const {
  Answer::Applied applied;
  applied.step_ended = schedule_.ended_step() != nullptr;
  // The first part of a step that ends with this one has an earlier base.
  if (schedule_.step().base_length != verdict.base_length) {
    applied.step = schedule_.step();
  }
  applied.stats = schedule_.stats();
  applied.alpha = schedule_.alpha();
  applied.window = schedule_.plan().window;
  applied.now_ns = now_ns;
  return applied;
}

void Session::OnSpan(WorkerRole role, const SpanRecord& span) {
  if (role != WorkerRole::kTarget) return;
  if (span.kind == SpanRecord::Kind::kPrefill) {
    last_prefill_start_ns_ = span.start_ns;
  }
  // A first step may share its forward with rows of its own prompt.
  if (span.kind != SpanRecord::Kind::kVerify ||
      span.start_ns == last_prefill_start_ns_) {
    return;
  }
  const int others = span.batch_rows - span.rows;
  if (other_rows_ < 0) other_rows_ = others;
  other_rows_ += speculation::kRowsWeight * (others - other_rows_);
  own_rows_ += speculation::kRowsWeight * (span.rows - own_rows_);
}

void Session::OnWorkerLeft(WorkerRole role) {
  if (role == WorkerRole::kDraft) return;
  // The next target has another clock and other company, and is opened with
  // everything committed.
  last_prefill_start_ns_ = 0;
  other_rows_ = -1;
  acknowledged_ = schedule_.committed_length();
}

absl::optional<int> Session::TakeAcknowledgement() {
  const int length = schedule_.committed_length();
  held_back_ = false;
  if (length - acknowledged_ < speculation::kAcknowledgeEvery) {
    return absl::nullopt;
  }
  if (request().stream && answer_->pending_chunks() > kMaxPendingChunks) {
    held_back_ = true;
    return absl::nullopt;
  }
  acknowledged_ = length;
  return length;
}

}  // namespace nacre::coordinator
