#include "coordinator/dispatch/event_router.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nacre::coordinator {
namespace {

constexpr size_t kCacheLine = 64;

template <typename T>
void Prefetch(const T& object) {
  const auto* const begin = reinterpret_cast<const char*>(&object);
  for (size_t i = 0; i < sizeof(T); i += kCacheLine) {
    __builtin_prefetch(begin + i);
  }
}

// Of thousands of sessions little is in the processor's caches. What the spans
// after the i-th will need of their sessions is fetched meanwhile. First the
// place in the table, then the session, then what that points to. The spans of
// a message come first, and mostly each of its sessions has one.
void PrefetchAhead(const DispatcherState& state,
                   const std::vector<wire::Span>& spans, size_t i) {
  constexpr size_t kPlace = 12, kSession = 8, kParts = 4, kRequest = 2;
  if (i + kPlace < spans.size()) {
    state.sessions.prefetch(spans[i + kPlace].session_id);
  }
  if (i + kSession < spans.size()) {
    const Session* session = state.Find(spans[i + kSession].session_id);
    if (session != nullptr) Prefetch(*session);
  }
  if (i + kParts < spans.size()) {
    Session* session = state.Find(spans[i + kParts].session_id);
    if (session != nullptr) {
      __builtin_prefetch(&session->target_worker);
      __builtin_prefetch(&session->answer()->noted_in);
      Prefetch(session->answer()->queue());
      const speculation::SessionSchedule& schedule = session->schedule();
      __builtin_prefetch(schedule.committed().data() +
                         schedule.committed().size());
      __builtin_prefetch(schedule.step().token_ids.data());
    }
  }
  if (i + kRequest < spans.size()) {
    const Session* session = state.Find(spans[i + kRequest].session_id);
    if (session != nullptr) Prefetch(session->request());
  }
}

// Whether what the target took of the session's draft is so of other sessions
// of the pair. Of a tree by probability it is not: at a temperature above 0 its
// first choice is right far less often than a chain's. Without slots it is one.
bool TellsOfPair(const Session& session) {
  return session.draft_slots == 0 || !session.request().tree.ranks_by_q();
}

}  // namespace

void EventRouter::OnEvents(uint64_t target_id,
                           const Shared<wire::TargetEvents>& events) {
  OnSpans(target_id, {events, &events->common});
  OnPrompts(target_id, events->common);
  OnPromptLogprobs(target_id, events);
  OnVerdicts(target_id, events);
  OnEnds(target_id, WorkerRole::kTarget, events->common);
  relocator_.Settle();
}

void EventRouter::OnEvents(uint64_t draft_id,
                           const Shared<wire::DraftEvents>& events) {
  OnSpans(draft_id, {events, &events->common});
  OnTails(draft_id, events);
  OnNotes(draft_id, *events);
  OnEnds(draft_id, WorkerRole::kDraft, events->common);
  relocator_.Settle();
}

void EventRouter::OnTails(uint64_t draft_id,
                          const Shared<wire::DraftEvents>& events) {
  for (const auto& each : events->tails) {
    const auto& [session_id, tail] = each;
    Session* session = state_.FindOn(session_id, draft_id);
    if (session == nullptr || !session->schedule().OnTail(tail)) continue;
    pairing_.link(session->target_worker).target().RelayTail(session_id, tail);
    state_.outbox.Later(session->answer(),
                        [answer = session->answer().get(), events,
                         &tail = each.tail] { answer->OnTail(tail); });
  }
}

void EventRouter::ShowNote(uint64_t session_id, uint64_t draft_id,
                           const std::string& note) {
  Session* session = state_.FindOn(session_id, draft_id);
  if (session == nullptr) return;
  state_.outbox.Later(
      session->answer(),
      [answer = session->answer().get(), note] { answer->OnPolicyNote(note); });
}

void EventRouter::OnNotes(uint64_t draft_id, const wire::DraftEvents& events) {
  for (const auto& [session_id, note] : events.policy_notes) {
    ShowNote(session_id, draft_id, note);
  }
  for (const wire::SessionRanks& each : events.ranks) {
    const std::vector<int>& ranks = each.ranks;
    Session* session = state_.FindOn(each.session_id, draft_id);
    if (session == nullptr ||
        !session->schedule().OnRanks(each.epoch, ranks, each.prepared)) {
      continue;
    }
    const auto news = session->schedule().TakeNewsOfPair();
    if (!TellsOfPair(*session)) continue;
    speculation::RankHistogram& of_pair = state_.fleet.at(draft_id).ranks;
    for (const int rank : ranks) of_pair.Add(rank);
    state_.fleet.at(draft_id).acceptance.Add(news.verified, news.accepted);
  }
  for (const wire::SessionOpening& opening : events.common.opened) {
    if (!opening.policy_note.empty()) {
      ShowNote(opening.session_id, draft_id, opening.policy_note);
    }
  }
}

void EventRouter::OnVerdicts(uint64_t target_id,
                             const Shared<wire::TargetEvents>& events) {
  const int64_t now_ns = state_.now_ns();
  for (const wire::SessionVerdict& event : events->verdicts) {
    Session* session = state_.FindOn(event.session_id, target_id);
    if (session == nullptr) continue;
    // Its tokens may be others than those of the present opening (by the ratio
    // test), or end where none of its verdicts begins.
    // It must say first what was asked of the prompt.
    if (IsOfEarlierOpening(event.session_id, target_id) ||
        session->LacksPromptLogprobs()) {
      session->schedule().CountStale();
      continue;
    }
    const absl::optional<speculation::Commit> commit =
        session->ApplyVerdict(event.verdict);
    if (!commit.has_value()) continue;
    session->failover.OnProgress();
    session->answer()->ExpectChunk();
    state_.outbox.Later(session->answer(),
                        [answer = session->answer().get(), events, &event,
                         applied = session->Applied(event.verdict, now_ns)] {
                          answer->Show(event.verdict, event.logprobs, applied);
                        });
    const uint64_t draft_id = session->draft_worker;
    const auto news = session->schedule().TakeNewsOfPair();
    if (draft_id != 0 && TellsOfPair(*session)) {
      state_.fleet.at(draft_id).acceptance.Add(news.verified, news.accepted);
    }
    if (session->Finishes(event.verdict)) {
      desk_.Complete(*session);
      continue;
    }
    if (draft_id != 0) {
      pairing_.link(draft_id).draft().RelayCommit(event.session_id, *commit);
    }
    pairing_.PlanLater(*session);
    desk_.Acknowledge(*session);
  }
}

void EventRouter::OnPromptLogprobs(uint64_t target_id,
                                   const Shared<wire::TargetEvents>& events) {
  for (const wire::PromptLogprobs& told : events->prompt_logprobs) {
    Session* session = state_.FindOn(told.session_id, target_id);
    if (session == nullptr) continue;
    // The present opening says again what was not known when it was opened.
    if (IsOfEarlierOpening(told.session_id, target_id) ||
        !session->ApplyPromptLogprobs(told)) {
      session->schedule().CountStale();
      continue;
    }
    session->failover.OnProgress();
    state_.outbox.Later(session->answer(),
                        [answer = session->answer().get(), events, &told] {
                          answer->OnPromptLogprobs(told.logprobs);
                        });
  }
}

void EventRouter::OnSpans(uint64_t worker_id,
                          const Shared<wire::SessionEvents>& events) {
  FleetWorker& worker = state_.fleet.at(worker_id);
  const WorkerRole role = worker.role;
  const int64_t clock_offset_ns =
      std::as_const(pairing_.link(worker_id))->clock_offset_ns();
  const std::vector<wire::Span>& spans = events->spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    PrefetchAhead(state_, spans, i);
    const wire::Span& span = spans[i];
    worker.OnSpan(span);
    Session* session = state_.FindOn(span.session_id, worker_id);
    if (session == nullptr) continue;
    session->OnSpan(role, span);
    state_.outbox.Later(
        session->answer(),
        [answer = session->answer().get(), events, &span, role,
         clock_offset_ns] { answer->OnSpan(role, span, clock_offset_ns); });
  }
}

void EventRouter::OnPrompts(uint64_t target_id,
                            const wire::SessionEvents& events) {
  for (const auto& [session_id, tokens, note] : events.opened) {
    Session* session = state_.FindOn(session_id, target_id);
    if (session == nullptr) continue;
    state_.outbox.Later(session->answer(),
                        [answer = session->answer().get(), tokens = tokens] {
                          answer->OnOpened(tokens);
                        });
  }
  for (const auto& [session_id, tokens] : events.cached) {
    Session* session = state_.FindOn(session_id, target_id);
    if (session == nullptr) continue;
    state_.outbox.Later(session->answer(),
                        [answer = session->answer().get(), tokens = tokens] {
                          answer->OnCached(tokens);
                        });
  }
}

void EventRouter::ReleaseRoom(uint64_t worker_id, uint64_t session_id) {
  const auto role = state_.fleet.Release(worker_id, session_id);
  if (role.has_value()) state_.OnRoom(*role);
}

void EventRouter::OnEnds(uint64_t worker_id, WorkerRole role,
                         const wire::SessionEvents& events) {
  for (const wire::Malformed& part : events.malformed) {
    Session* session = state_.FindOn(part.session_id, worker_id);
    if (session != nullptr) session->schedule().CountStale();
  }
  for (const uint64_t session_id : events.closed) {
    ReleaseRoom(worker_id, session_id);
  }
  for (const wire::SessionFailure& failure : events.failures) {
    OnFailure(worker_id, role, failure);
  }
}

void EventRouter::OnFailure(uint64_t worker_id, WorkerRole role,
                            const wire::SessionFailure& failure) {
  const bool is_old = IsOfEarlierOpening(failure.session_id, worker_id);
  ReleaseRoom(worker_id, failure.session_id);
  Session* session = state_.FindOn(failure.session_id, worker_id);
  if (session == nullptr || is_old) return;
  if (role == WorkerRole::kTarget) {
    relocator_.OnTargetFailure(*session, failure.status);
    return;
  }
  // Drafts say themselves which opening it was.
  if (failure.epoch == 0 || failure.epoch == session->schedule().epoch()) {
    relocator_.OnDraftFailure(*session, failure.status);
  }
}

}  // namespace nacre::coordinator
