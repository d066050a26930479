// What workers say: verdicts, tails, spans, failures.

#include <memory>
#include <string>
#include <utility>

#include "coordinator/dispatcher.h"
#include "coordinator/dispatcher_turn.h"
#include "coordinator/session.h"

namespace nacre::coordinator {

void Dispatcher::OnEvents(uint64_t worker_id, wire::TargetEvents events) {
  const int64_t arrival_ns = options_.now_ns();  // waiting for the lock counts
  if (events.empty()) return;
  // The answers' tasks read them when the lock is free.
  const auto shared =
      std::make_shared<const wire::TargetEvents>(std::move(events));
  {
    Turn turn(this);
    Worker* worker = FindWorker(worker_id);
    if (worker == nullptr || worker->role != WorkerRole::kTarget) return;
    OnSpans(worker_id, *worker, {shared, &shared->common});
    OnPrompts(worker_id, shared->common);
    OnVerdicts(worker_id, shared);
    OnEnds(worker_id, worker->role, shared->common);
    Settle();
  }
  if (!shared->verdicts.empty()) {
    observer_.OnVerdictsHandled(options_.now_ns() - arrival_ns);
  }
}

void Dispatcher::OnEvents(uint64_t worker_id, wire::DraftEvents events) {
  if (events.empty()) return;
  const auto shared =
      std::make_shared<const wire::DraftEvents>(std::move(events));
  Turn turn(this);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr || worker->role != WorkerRole::kDraft) return;
  OnSpans(worker_id, *worker, {shared, &shared->common});
  OnTails(worker_id, shared);
  OnNotes(worker_id, *shared);
  OnEnds(worker_id, worker->role, shared->common);
  Settle();
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

void Dispatcher::OnTails(uint64_t draft_id,
                         const Shared<wire::DraftEvents>& events) {
  for (const auto& each : events->tails) {
    const auto& [session_id, tail] = each;
    Session* session = FindSession(session_id, draft_id);
    if (session == nullptr || !session->schedule().OnTail(tail)) continue;
    FindWorker(session->target_worker)
        ->client.target()
        .RelayTail(session_id, tail);
    outbox_.Later(session->answer(),
                  [answer = session->answer().get(), events,
                   &tail = each.tail] { answer->OnTail(tail); });
  }
}

void Dispatcher::OnNotes(uint64_t draft_id, const wire::DraftEvents& events) {
  const auto show = [&](uint64_t session_id, const std::string& note)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                          Session* session = FindSession(session_id, draft_id);
                          if (session == nullptr) return;
                          outbox_.Later(session->answer(),
                                        [answer = session->answer().get(),
                                         note] { answer->OnPolicyNote(note); });
                        };
  for (const auto& [session_id, note] : events.policy_notes) {
    show(session_id, note);
  }
  for (const wire::SessionOpening& opening : events.common.opened) {
    if (!opening.policy_note.empty()) {
      show(opening.session_id, opening.policy_note);
    }
  }
}

void Dispatcher::OnVerdicts(uint64_t target_id,
                            const Shared<wire::TargetEvents>& events) {
  const int64_t now_ns = options_.now_ns();
  for (const wire::SessionVerdict& event : events->verdicts) {
    Session* session = FindSession(event.session_id, target_id);
    if (session == nullptr) continue;
    // Its tokens may be others than those of the present opening (by the ratio
    // test), or end where none of its verdicts begins.
    if (IsOfEarlierOpening(event.session_id, target_id)) {
      session->schedule().CountStale();
      continue;
    }
    const absl::optional<speculation::Commit> commit =
        session->ApplyVerdict(event.verdict);
    if (!commit.has_value()) continue;
    session->failover.give_up_ns = kNever;
    session->failover.num_losses = 0;
    session->answer()->ExpectChunk();
    outbox_.Later(session->answer(),
                  [answer = session->answer().get(), events, &event,
                   applied = session->Applied(event.verdict, now_ns)] {
                    answer->Show(event.verdict, event.logprobs, applied);
                  });
    Worker* draft = FindWorker(session->draft_worker);
    if (draft != nullptr) {
      draft->acceptance.Add(event.verdict.verified, event.verdict.accepted);
    }
    if (session->Finishes(event.verdict)) {
      Complete(*session);
      continue;
    }
    if (draft != nullptr) {
      draft->client.draft().RelayCommit(event.session_id, *commit);
    }
    PlanLater(*session);
    Acknowledge(*session);
  }
}

void Dispatcher::OnSpans(uint64_t worker_id, Worker& worker,
                         const Shared<wire::SessionEvents>& events) {
  const WorkerRole role = worker.role;
  const wire::Span::Kind step_kind = role == WorkerRole::kDraft
                                         ? wire::Span::Kind::kDraft
                                         : wire::Span::Kind::kVerify;
  const int64_t clock_offset_ns =
      std::as_const(worker).client->clock_offset_ns();
  for (const wire::Span& span : events->spans) {
    if (span.kind == step_kind && !span.abandoned &&
        span.start_ns != worker.last_step_start_ns) {
      worker.last_step_start_ns = span.start_ns;
      worker.AddStepTime(span.batch_rows, span.duration_ns);
    }
    Session* session = FindSession(span.session_id, worker_id);
    if (session == nullptr) continue;
    session->OnSpan(role, span);
    outbox_.Later(session->answer(), [answer = session->answer().get(), events,
                                      &span, role, clock_offset_ns] {
      answer->OnSpan(role, span, clock_offset_ns);
    });
  }
}

void Dispatcher::OnPrompts(uint64_t target_id,
                           const wire::SessionEvents& events) {
  for (const auto& [session_id, tokens, note] : events.opened) {
    Session* session = FindSession(session_id, target_id);
    if (session == nullptr) continue;
    outbox_.Later(session->answer(),
                  [answer = session->answer().get(), tokens = tokens] {
                    answer->OnOpened(tokens);
                  });
  }
  for (const auto& [session_id, tokens] : events.cached) {
    Session* session = FindSession(session_id, target_id);
    if (session == nullptr) continue;
    outbox_.Later(session->answer(),
                  [answer = session->answer().get(), tokens = tokens] {
                    answer->OnCached(tokens);
                  });
  }
}

void Dispatcher::OnEnds(uint64_t worker_id, WorkerRole role,
                        const wire::SessionEvents& events) {
  for (const wire::Malformed& part : events.malformed) {
    Session* session = FindSession(part.session_id, worker_id);
    if (session != nullptr) session->schedule().CountStale();
  }
  for (const uint64_t session_id : events.closed) {
    ReleaseRoom(worker_id, session_id);
  }
  for (const wire::SessionFailure& failure : events.failures) {
    const bool is_old = IsOfEarlierOpening(failure.session_id, worker_id);
    ReleaseRoom(worker_id, failure.session_id);
    Session* session = FindSession(failure.session_id, worker_id);
    if (session == nullptr || is_old) continue;
    if (role == WorkerRole::kDraft) {
      // Drafts say themselves which opening it was.
      if (failure.epoch != 0 && failure.epoch != session->schedule().epoch()) {
        continue;
      }
      session->refused_by.insert(worker_id);
      LoseDraft(*session);
      AttachDraft(*session);
    } else {
      OnTargetFailure(*session, failure.status);
    }
  }
}

void Dispatcher::OnSinkDrained(uint64_t session_id) {
  Turn turn(this);
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  Acknowledge(*it->second);  // frees no room: nothing to settle
}

void Dispatcher::Acknowledge(Session& session) {
  if (session.target_worker == 0) return;
  if (const auto length = session.TakeAcknowledgement()) {
    FindWorker(session.target_worker)
        ->client.target()
        .Acknowledge(session.id(), *length);
  }
  if (!session.is_held_back()) {
    stalls_.erase(session.id());
  } else if (options_.client_timeout_ns != kNever &&
             !stalls_.contains(session.id())) {
    const int64_t now_ns = options_.now_ns();
    stalls_[session.id()] = {now_ns, session.answer()->taken_chunks()};
    WakeAt(After(now_ns, options_.client_timeout_ns));
  }
}

}  // namespace nacre::coordinator
