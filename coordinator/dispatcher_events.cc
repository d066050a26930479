// What workers say: verdicts, tails, spans, failures.

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatcher.h"
#include "coordinator/session.h"

namespace nacre::coordinator {
namespace {

// A failure is never OK, whatever its worker calls it.
absl::Status FailureStatus(const WorkerEvents::Failure& failure) {
  const absl::Status status(static_cast<absl::StatusCode>(failure.code),
                            failure.message);
  return status.ok() ? absl::InternalError(failure.message) : status;
}

}  // namespace

void Dispatcher::OnEvents(uint64_t worker_id, const WorkerEvents& events) {
  const int64_t arrival_ns = options_.now_ns();  // waiting for the lock counts
  absl::MutexLock lock(&mu_);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  const WorkerRole role = worker->info.role;
  // A session of this worker, or null: late messages name closed ones.
  const auto find = [&](uint64_t session_id)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) -> Session* {
    const auto it = sessions_.find(session_id);
    if (it == sessions_.end()) return nullptr;
    const uint64_t owner = role == WorkerRole::kDraft
                               ? it->second->draft_worker
                               : it->second->target_worker;
    return owner == worker_id ? it->second.get() : nullptr;
  };
  const SpanRecord::Kind step_kind = role == WorkerRole::kDraft
                                         ? SpanRecord::Kind::kDraft
                                         : SpanRecord::Kind::kVerify;
  for (const SpanRecord& span : events.spans) {
    if (span.kind == step_kind && span.start_ns != worker->last_step_start_ns) {
      worker->last_step_start_ns = span.start_ns;
      worker->step_times.Add(span.batch_rows, span.duration_ns);
    }
    if (Session* session = find(span.session_id)) {
      session->OnSpan(role, span);
      observer_.OnSpan(span.session_id, role, span,
                       worker->client->clock_offset_ns());
    }
  }
  if (role == WorkerRole::kTarget) {
    for (const auto& [session_id, opened_with] : events.opened) {
      Session* session = find(session_id);
      if (session == nullptr) continue;
      if (const auto cached_tokens = session->OnOpened(opened_with)) {
        observer_.OnOpened(session_id, *cached_tokens);
      }
    }
    for (const auto& [session_id, tokens] : events.cached) {
      Session* session = find(session_id);
      if (session == nullptr) continue;
      if (const int more = session->OnCached(tokens); more > 0) {
        observer_.OnCached(session_id, more);
      }
    }
    for (const auto& [session_id, verdict, logprobs] : events.verdicts) {
      if (Session* session = find(session_id)) {
        OnVerdict(*session, verdict, logprobs);
      }
    }
  } else {
    for (const auto& [session_id, tail] : events.tails) {
      Session* session = find(session_id);
      if (session == nullptr || !session->schedule().OnTail(tail)) continue;
      Worker* target = FindWorker(session->target_worker);
      target->client->RelayTail(session_id, tail);
      observer_.OnTail(session_id, tail);
    }
  }
  for (uint64_t session_id : events.closed) {
    ReleaseRoom(worker_id, session_id);
  }
  for (const WorkerEvents::Failure& failure : events.failures) {
    ReleaseRoom(worker_id, failure.session_id);
    Session* session = find(failure.session_id);
    if (session == nullptr) continue;
    if (role == WorkerRole::kDraft) {
      // An earlier session of that id may have failed there.
      if (failure.epoch != 0 && failure.epoch != session->schedule().epoch()) {
        continue;
      }
      session->refused_by.insert(worker_id);
      LoseDraft(*session);
      AttachDraft(*session);
    } else {
      OnTargetFailure(*session, FailureStatus(failure));
    }
  }
  Settle();
  if (!events.verdicts.empty()) {
    observer_.OnVerdictsHandled(options_.now_ns() - arrival_ns);
  }
}

void Dispatcher::OnVerdict(Session& session,
                           const speculation::Verdict& verdict,
                           absl::Span<const TokenLogprobs> logprobs) {
  const int64_t now_ns = options_.now_ns();
  const int num_shown = session.num_shown();
  const absl::optional<speculation::Commit> commit =
      session.OnVerdict(verdict, now_ns, logprobs);
  if (!commit.has_value()) return;
  session.failover.give_up_ns = kNever;
  session.failover.num_losses = 0;
  acceptance_.Add(verdict.verified, verdict.accepted);
  observer_.OnRound(session.id(), verdict, session.num_shown() - num_shown);
  Worker* target = FindWorker(session.target_worker);
  Worker* draft = FindWorker(session.draft_worker);
  if (session.finished()) {
    absl::optional<TraceLane> draft_lane;
    if (draft != nullptr) draft_lane = LaneOf(*draft);
    const Completion completion = session.Complete(
        LaneOf(*target), draft_lane, Costs(session).CostRatio(), now_ns);
    observer_.OnFinished(session.id(), session.request(), absl::OkStatus(),
                         &completion);
    End(session.id());
    return;
  }
  if (draft != nullptr) draft->client->RelayCommit(session.id(), *commit);
  if (const auto plan = session.schedule().Replan(Costs(session))) {
    target->client->UpdateTarget(session.id(), plan->target);
    if (draft != nullptr) draft->client->UpdateDraft(session.id(), plan->draft);
  }
  Acknowledge(session);
}

void Dispatcher::OnSinkDrained(uint64_t session_id) {
  absl::MutexLock lock(&mu_);
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  Acknowledge(*it->second);
  Settle();
}

void Dispatcher::Acknowledge(Session& session) {
  if (session.target_worker == 0) return;
  if (const auto length = session.TakeAcknowledgement()) {
    FindWorker(session.target_worker)
        ->client->Acknowledge(session.id(), *length);
  }
  if (!session.is_held_back()) {
    stalls_.erase(session.id());
  } else if (options_.client_timeout_ns != kNever &&
             !stalls_.contains(session.id())) {
    const int64_t now_ns = options_.now_ns();
    stalls_[session.id()] = {now_ns, session.sink().taken_chunks()};
    WakeAt(now_ns + options_.client_timeout_ns);
  }
}

}  // namespace nacre::coordinator
