// What workers say: verdicts, tails, spans, failures.

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "coordinator/dispatcher.h"
#include "coordinator/session.h"

namespace nacre::coordinator {
namespace {

using SessionVerdict = WorkerEvents::SessionVerdict;

// How many there are, from the front, before a session comes again.
size_t CountDistinct(absl::Span<const SessionVerdict> verdicts) {
  absl::flat_hash_set<uint64_t> seen;
  size_t count = 0;
  while (count < verdicts.size() &&
         seen.insert(verdicts[count].session_id).second) {
    ++count;
  }
  return count;
}

// A failure is never OK, whatever its worker calls it.
absl::Status FailureStatus(const WorkerEvents::Failure& failure) {
  const absl::Status status(static_cast<absl::StatusCode>(failure.code),
                            failure.message);
  return status.ok() ? absl::InternalError(failure.message) : status;
}

}  // namespace

// What the other worker waits for leaves first: text, metrics and plans of many
// sessions take longer than a hop.
void Dispatcher::OnEvents(uint64_t worker_id, const WorkerEvents& events) {
  const int64_t arrival_ns = options_.now_ns();  // waiting for the lock counts
  absl::MutexLock lock(&mu_);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  const WorkerRole role = worker->info.role;
  if (role == WorkerRole::kDraft) {
    const std::vector<bool> relayed = RelayTails(worker_id, events);
    OnSpans(worker_id, *worker, events);
    for (size_t i = 0; i < relayed.size(); ++i) {
      const auto& [session_id, tail] = events.tails[i];
      if (relayed[i]) observer_.OnTail(session_id, tail);
    }
    for (const auto& [session_id, note] : events.policy_notes) {
      Session* session = FindSession(session_id, worker_id);
      if (session != nullptr) session->OnPolicyNote(note);
    }
  } else {
    absl::Span<const SessionVerdict> verdicts = events.verdicts;
    size_t count = CountDistinct(verdicts);
    std::vector<bool> applied = RelayVerdicts(worker_id, verdicts.first(count));
    OnSpans(worker_id, *worker, events);
    OnPrompts(worker_id, events);
    while (true) {
      for (size_t i = 0; i < count; ++i) {
        Session* session = FindSession(verdicts[i].session_id, worker_id);
        if (applied[i] && session != nullptr) OnVerdict(*session, verdicts[i]);
      }
      verdicts.remove_prefix(count);
      if (verdicts.empty()) break;
      count = CountDistinct(verdicts);
      applied = RelayVerdicts(worker_id, verdicts.first(count));
    }
  }
  for (uint64_t session_id : events.closed) {
    ReleaseRoom(worker_id, session_id);
  }
  OnFailures(worker_id, role, events);
  Settle();
  if (!events.verdicts.empty()) {
    observer_.OnVerdictsHandled(options_.now_ns() - arrival_ns);
  }
}

Session* Dispatcher::FindSession(uint64_t session_id, uint64_t worker_id) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return nullptr;
  Session* session = it->second.get();
  return session->draft_worker == worker_id ||
                 session->target_worker == worker_id
             ? session
             : nullptr;
}

std::vector<bool> Dispatcher::RelayTails(uint64_t draft_id,
                                         const WorkerEvents& events) {
  std::vector<bool> relayed(events.tails.size());
  for (size_t i = 0; i < events.tails.size(); ++i) {
    const auto& [session_id, tail] = events.tails[i];
    Session* session = FindSession(session_id, draft_id);
    if (session == nullptr || !session->schedule().OnTail(tail)) continue;
    FindWorker(session->target_worker)->client->RelayTail(session_id, tail);
    relayed[i] = true;
  }
  if (!relayed.empty()) Flush();
  return relayed;
}

std::vector<bool> Dispatcher::RelayVerdicts(
    uint64_t target_id, absl::Span<const SessionVerdict> verdicts) {
  std::vector<bool> applied(verdicts.size());
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const auto& [session_id, verdict, logprobs] = verdicts[i];
    Session* session = FindSession(session_id, target_id);
    if (session == nullptr) continue;
    const absl::optional<speculation::Commit> commit =
        session->ApplyVerdict(verdict);
    if (!commit.has_value()) continue;
    applied[i] = true;
    if (verdict.finish != speculation::FinishReason::kNone) continue;
    if (Worker* draft = FindWorker(session->draft_worker)) {
      draft->client->RelayCommit(session_id, *commit);
    }
  }
  if (!applied.empty()) Flush();
  return applied;
}

void Dispatcher::OnSpans(uint64_t worker_id, Worker& worker,
                         const WorkerEvents& events) {
  const WorkerRole role = worker.info.role;
  const SpanRecord::Kind step_kind = role == WorkerRole::kDraft
                                         ? SpanRecord::Kind::kDraft
                                         : SpanRecord::Kind::kVerify;
  for (const SpanRecord& span : events.spans) {
    if (span.kind == step_kind && !span.abandoned &&
        span.start_ns != worker.last_step_start_ns) {
      worker.last_step_start_ns = span.start_ns;
      worker.step_times.Add(span.batch_rows, span.duration_ns);
    }
    if (Session* session = FindSession(span.session_id, worker_id)) {
      session->OnSpan(role, span);
      observer_.OnSpan(span.session_id, role, span,
                       worker.client->clock_offset_ns());
    }
  }
}

void Dispatcher::OnPrompts(uint64_t target_id, const WorkerEvents& events) {
  for (const auto& [session_id, opened_with] : events.opened) {
    Session* session = FindSession(session_id, target_id);
    if (session == nullptr) continue;
    if (const auto cached_tokens = session->OnOpened(opened_with)) {
      observer_.OnOpened(session_id, *cached_tokens);
    }
  }
  for (const auto& [session_id, tokens] : events.cached) {
    Session* session = FindSession(session_id, target_id);
    if (session == nullptr) continue;
    if (const int more = session->OnCached(tokens); more > 0) {
      observer_.OnCached(session_id, more);
    }
  }
}

void Dispatcher::OnVerdict(Session& session, const SessionVerdict& event) {
  const speculation::Verdict& verdict = event.verdict;
  const int64_t now_ns = options_.now_ns();
  const int num_shown = session.num_shown();
  session.ShowVerdict(verdict, now_ns, event.logprobs);
  session.failover.give_up_ns = kNever;
  session.failover.num_losses = 0;
  acceptance_.Add(verdict.verified, verdict.accepted);
  if (const auto* step = session.schedule().ended_step()) {
    observer_.OnRound(session.id(), *step, session.num_shown() - num_shown);
  } else {
    observer_.OnAccepted(session.id(), session.num_shown() - num_shown);
  }
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
  if (const auto plan = session.schedule().Replan(Costs(session))) {
    target->client->UpdateTarget(session.id(), plan->target);
    if (draft != nullptr) draft->client->UpdateDraft(session.id(), plan->draft);
  }
  Acknowledge(session);
}

void Dispatcher::OnFailures(uint64_t worker_id, WorkerRole role,
                            const WorkerEvents& events) {
  for (const WorkerEvents::Failure& failure : events.failures) {
    ReleaseRoom(worker_id, failure.session_id);
    Session* session = FindSession(failure.session_id, worker_id);
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
