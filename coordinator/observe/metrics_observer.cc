#include "coordinator/observe/metrics_observer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/observe/branch_account.h"
#include "coordinator/observe/metrics_series.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {
namespace {

using speculation::Method;
using speculation::StopMark;
using speculation::Verdict;

double SpentSeconds(int64_t nanoseconds) {
  return static_cast<double>(std::max<int64_t>(0, nanoseconds)) * 1e-9;
}

}  // namespace

struct MetricsObserver::Session {
  Method method = Method::kAsync;
  size_t policy = 0;   // PolicyKind
  int chunk_end = -1;  // where the last chunk ended that its policy ended
  int prompt_tokens = 0;
  int64_t arrival_ns = 0;
  int64_t last_token_ns = 0;  // 0 before the first token
  bool has_draft = false;
  bool had_draft = false;
  bool wants_draft = false;

  // Draft tokens that went to the target and those that it compared.
  int64_t drafted = 0;
  int64_t verified = 0;
  int committed_length = 0;
  // Tails based on less than this follow a rejected token.
  int mismatch_length = 0;
  int tail_end = 0;  // after the last draft token that may still be right
  BranchAccount branches;

  // The target's clock.
  int64_t last_step_end_ns = 0;
  std::string target_address;
  // Waited since the last round.
  int64_t target_wait_ns = 0;
  int64_t draft_wait_ns = 0;
};

MetricsObserver::MetricsObserver(const std::string& model, Clock now_ns)
    : now_ns_(std::move(now_ns)), series_(std::make_unique<Series>(model)) {}

MetricsObserver::~MetricsObserver() = default;

std::shared_ptr<prometheus::Collectable> MetricsObserver::collectable() const {
  return series_->builder.registry();
}

void MetricsObserver::OnQueued(const RequestSpec& request, int) {
  if (queued_.emplace(request.request_id, request.choice).second) {
    series_->waiting.Increment();
  }
}

void MetricsObserver::OnRefused(const RequestSpec& request,
                                const absl::Status& status) {
  // It is the other one of this name that waits.
  if (absl::IsAlreadyExists(status)) return;
  if (queued_.erase({request.request_id, request.choice}) > 0) {
    series_->waiting.Decrement();
  }
}

void MetricsObserver::OnStarted(uint64_t session_id, const RequestSpec& request,
                                const Placement& placement, int64_t queue_ns) {
  if (queued_.erase({request.request_id, request.choice}) > 0) {
    series_->waiting.Decrement();
  }
  series_->running.Increment();
  series_->queue_time.Observe(SpentSeconds(queue_ns));
  series_->prompt_tokens.Increment(
      static_cast<double>(request.prompt_ids.size()));
  auto session = std::make_unique<Session>();
  session->method = request.method;
  session->wants_draft = request.wants_draft();
  session->policy = static_cast<size_t>(request.policy.kind());
  session->arrival_ns = now_ns_() - queue_ns;
  session->prompt_tokens = static_cast<int>(request.prompt_ids.size());
  session->committed_length =
      session->prompt_tokens + static_cast<int>(request.resumed_ids().size());
  session->branches = BranchAccount(session->committed_length);
  session->has_draft = session->had_draft = !placement.draft_address.empty();
  session->target_address = placement.target_address;
  sessions_[session_id] = std::move(session);
}

void MetricsObserver::OnOpened(uint64_t session_id, int cached_tokens) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  series_->prefix_queries.Increment(it->second->prompt_tokens);
  series_->prefix_hits.Increment(cached_tokens);
}

void MetricsObserver::OnCached(uint64_t session_id, int tokens) {
  if (sessions_.contains(session_id)) series_->prefix_hits.Increment(tokens);
}

void MetricsObserver::OnTail(uint64_t session_id,
                             const speculation::Tail& tail) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  Session& session = *it->second;
  const int count = static_cast<int>(tail.token_ids.size());
  session.drafted += count;
  session.branches.OnTail(tail);
  const bool by_policy =
      tail.stop == StopMark::kChunk || tail.stop == StopMark::kPolicy;
  // A draft that waits there says so again with every commit; that of a tree,
  // all of whose messages begin at its root, with each that completes the
  // level.
  const int goes_on = tail.is_tree() ? 0 : count;
  if (by_policy && (goes_on > 0 || tail.first_position != session.chunk_end)) {
    series_->policy_stops[session.policy]->Increment();
  }
  if (by_policy) {
    session.chunk_end = tail.first_position + goes_on;
  } else if (count > 0) {
    session.chunk_end = -1;
  }
  series_->draft_tokens.Increment(count);
  // Of a tree: no chain goes on there.
  if (tail.base_length >= session.mismatch_length && !tail.is_tree()) {
    session.tail_end = tail.first_position + count;
  }
}

void MetricsObserver::OnSpan(uint64_t session_id, WorkerRole role,
                             const SpanRecord& span, int64_t) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  Session& session = *it->second;
  switch (span.kind) {
    case SpanRecord::Kind::kVerify: {
      if (role != WorkerRole::kTarget) break;
      const int64_t end_ns = span.start_ns + span.duration_ns;
      const int64_t begin_ns = session.last_step_end_ns > 0
                                   ? session.last_step_end_ns
                                   : span.start_ns;
      session.last_step_end_ns = end_ns;
      series_->round_duration.Observe(SpentSeconds(end_ns - begin_ns));
      break;
    }
    case SpanRecord::Kind::kWaitDraftTokens:
      session.target_wait_ns =
          AddCapped(session.target_wait_ns, span.duration_ns);
      (span.after_miss ? series_->wait_after_miss : series_->wait_after_hit)
          .Increment(SpentSeconds(span.duration_ns));
      break;
    case SpanRecord::Kind::kWaitVerdict:
      session.draft_wait_ns =
          AddCapped(session.draft_wait_ns, span.duration_ns);
      break;
    case SpanRecord::Kind::kHidden:
      series_->hidden_bytes.Increment(static_cast<double>(span.bytes));
      series_->hidden_seconds.Increment(SpentSeconds(span.duration_ns));
      break;
    default:
      break;
  }
}

void MetricsObserver::OnAccepted(uint64_t session_id, int num_shown) {
  const auto it = sessions_.find(session_id);
  if (it != sessions_.end()) CountShown(*it->second, num_shown);
}

void MetricsObserver::OnRound(uint64_t session_id, const Verdict& verdict,
                              int num_shown) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  CountShown(*it->second, num_shown);
  CountRound(*it->second, verdict);
}

void MetricsObserver::CountShown(Session& session, int num_shown) {
  if (num_shown <= 0) return;
  const int64_t now_ns = now_ns_();
  int followers = num_shown;
  int64_t since_ns = session.last_token_ns;
  if (since_ns == 0) {
    series_->time_to_first_token.Observe(
        SpentSeconds(now_ns - session.arrival_ns));
    // The others of the first round came with it.
    since_ns = now_ns;
    --followers;
  }
  const double gap =
      followers > 0 ? SpentSeconds(now_ns - since_ns) / followers : 0;
  for (int i = 0; i < followers; ++i) series_->inter_token_latency.Observe(gap);
  session.last_token_ns = now_ns;
  series_->generation_tokens.Increment(num_shown);
}

void MetricsObserver::CountRound(Session& session, const Verdict& verdict) {
  const RoundMode mode = ModeOf(session.method, verdict);
  series_->mode_rounds[static_cast<int>(mode)]->Increment();
  if (verdict.degraded && session.wants_draft) {
    (session.had_draft ? series_->degraded_lost : series_->degraded_none)
        .Increment();
  }
  if (mode != RoundMode::kOff) {
    series_->draft_length.Observe(verdict.drafted());
    series_->draft_round_wait.Observe(SpentSeconds(session.draft_wait_ns));
    series_->target_round_wait.Observe(SpentSeconds(session.target_wait_ns));
  }
  session.draft_wait_ns = session.target_wait_ns = 0;

  if (verdict.verified > 0) series_->drafts.Increment();
  series_->verified_tokens.Increment(verdict.verified);
  series_->accepted_tokens.Increment(verdict.accepted);
  const int positions =
      std::min<int>(verdict.accepted, Series::kNumPositions - 1);
  for (int i = 0; i < positions; ++i) {
    series_->accepted_per_position[i]->Increment();
  }
  series_->accepted_per_position[Series::kNumPositions - 1]->Increment(
      verdict.accepted - positions);
  series_->wasted_rejected.Increment(verdict.verified - verdict.accepted);

  session.branches.OnCommitted(verdict.base_length, verdict.token_ids);
  session.verified += verdict.verified;
  session.committed_length =
      verdict.base_length + static_cast<int>(verdict.token_ids.size());
  if (verdict.accepted < verdict.verified) {
    session.mismatch_length = session.committed_length;
    session.tail_end = 0;
  }
}

void MetricsObserver::OnVerdictsHandled(int64_t duration_ns) {
  series_->round_overhead.Observe(SpentSeconds(duration_ns));
}

void MetricsObserver::OnMoved(uint64_t session_id, const Placement& placement) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  Session& session = *it->second;
  session.has_draft = !placement.draft_address.empty();
  session.had_draft = session.had_draft || session.has_draft;
  if (!session.has_draft) {
    session.tail_end = 0;
    session.branches.OnDraftLeft();
  }
  if (placement.target_address != session.target_address) {
    // Another clock, and what the old one had drafted against is gone.
    session.target_address = placement.target_address;
    session.last_step_end_ns = 0;
    session.tail_end = 0;
    session.branches.OnDraftLeft();
  }
}

void MetricsObserver::OnFinished(uint64_t session_id, const RequestSpec&,
                                 const absl::Status& status,
                                 const Completion* completion) {
  if (completion != nullptr) {
    for (int i = 0; i < speculation::kBeyond; ++i) {
      series_->target_ranks[i]->Increment(
          static_cast<double>(completion->stats.ranks[i]));
    }
  }
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  const Session& session = *it->second;
  series_->running.Decrement();
  const int64_t unused =
      std::max<int64_t>(0, session.drafted - session.verified);
  const int64_t pending = std::clamp<int64_t>(
      std::max<int64_t>(session.tail_end - session.committed_length,
                        session.branches.pending()),
      0, unused);
  const int64_t branches =
      std::clamp<int64_t>(session.branches.unused(), 0, unused - pending);
  series_->wasted_cancelled.Increment(static_cast<double>(pending));
  series_->wasted_branch.Increment(static_cast<double>(branches));
  series_->wasted_stale.Increment(
      static_cast<double>(unused - pending - branches));
  if (status.ok()) {
    series_->request_latency.Observe(
        SpentSeconds(now_ns_() - session.arrival_ns));
  }
  sessions_.erase(it);
}

void MetricsObserver::OnAnswered(absl::string_view, const absl::Status& status,
                                 absl::optional<Finish> finish) {
  series_->requests(status, finish).Increment();
}

}  // namespace nacre::coordinator
