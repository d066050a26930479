// Sessions whose target is gone, or about to go: they are held, with all that
// is committed, and go on where the same bits are computed. The client notices
// a pause at most.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/dispatcher.h"
#include "coordinator/session.h"

namespace nacre::coordinator {
namespace {

// Between two questions to a target that had no room.
constexpr int64_t kRetryNs = 1'000'000'000;
// A request that kills its targets must not take the whole fleet with it.
constexpr int kMaxLossesInARow = 5;

// Whether it computes the same bits as the session's first target.
bool IsEqualTarget(const WorkerRecord& worker, const Session& session) {
  return worker.info.role == WorkerRole::kTarget &&
         worker.info.fingerprint == session.failover.fingerprint &&
         worker.info.eos_token_ids == session.failover.eos_token_ids &&
         worker.info.numerics_id == session.failover.numerics_id;
}

}  // namespace

bool Dispatcher::CouldGoOn(const Session& session, uint64_t id,
                           const Worker& worker) const {
  return worker.ready && IsEqualTarget(worker, session) &&
         ledger_.CouldHold(id, Placer::Need(worker, session.request()));
}

bool Dispatcher::HasSoundTarget(const Session& session) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                       const auto& [id, worker] = entry;
                       return !session.failover.failed_on.contains(id) &&
                              CouldGoOn(session, id, worker);
                     });
}

uint64_t Dispatcher::EqualTarget(const Session& session,
                                 const WorkerIds& except) const {
  WorkerIds others = session.refused_by;
  others.insert(except.begin(), except.end());
  for (const auto& [id, worker] : workers_) {
    if (!IsEqualTarget(worker, session)) others.insert(id);
  }
  return placer_.LeastLoaded(WorkerRole::kTarget, session.request(), others);
}

void Dispatcher::TakeOff(Session& session) {
  Worker& target = workers_.at(session.target_worker.exchange(0));
  target.sessions.erase(session.id());
  if (session.follows_load()) --target.async_sessions;
  WorkerLeft(session, target);
  if (session.draft_worker != 0) {
    workers_.at(session.draft_worker).client->Close(session.id());
    LoseDraft(session);
  }
  NoteDraft(session);
  // Its client has nothing to take until the session goes on.
  stalls_.erase(session.id());
  const bool holds_step = session.schedule().ended_step() == nullptr;
  session.schedule().OnTargetLost();
  if (holds_step) {
    outbox_.Later(session.answer(), [answer = session.answer().get(),
                                     step = session.schedule().step()] {
      answer->EndHeldStep(step);
    });
  }
}

void Dispatcher::Hold(Session& session, std::string reason) {
  TakeOff(session);
  session.failover.reason = std::move(reason);
  session.failover.give_up_ns =
      After(options_.now_ns(), options_.failover_timeout_ns);
  held_.insert(session.id());
  held_changed_ = true;
  TellMoved(session);
}

void Dispatcher::OnTargetFailure(Session& session, const absl::Status& status) {
  const bool is_running = session.schedule().generated() > 0 ||
                          session.failover.num_losses > 0 ||
                          session.failover.moved;
  const uint64_t refuser = session.target_worker;
  session.refused_by.insert(refuser);
  if (absl::IsInternal(status)) session.failover.failed_on.insert(refuser);
  // No room, or it has forgotten the session: another may do, or this one
  // later. Its device has failed: another may do, now or when it has room.
  const bool may_wait = (absl::IsResourceExhausted(status) && is_running) ||
                        absl::IsAborted(status) ||
                        (absl::IsInternal(status) && HasSoundTarget(session));
  const bool may_move = absl::IsResourceExhausted(status) || may_wait;
  if (!may_move || (!may_wait && EqualTarget(session, /*except=*/{}) == 0)) {
    Fail(session, status);
    return;
  }
  const int64_t give_up_ns = session.failover.give_up_ns;
  if (!absl::IsResourceExhausted(status)) ++session.failover.num_losses;
  Hold(session,
       absl::StrCat("target worker ", workers_.at(refuser).info.address,
                    " gave it up: ", std::string(status.message())));
  // Being refused does not prolong the wait.
  session.failover.give_up_ns =
      std::min(session.failover.give_up_ns, give_up_ns);
  const int64_t now_ns = options_.now_ns();
  session.failover.retry_ns = now_ns + kRetryNs;
  // A last time at the end, however short the timeout.
  if (session.failover.give_up_ns > now_ns) {
    session.failover.retry_ns =
        std::min(session.failover.retry_ns, session.failover.give_up_ns);
  }
}

void Dispatcher::ResumeHeld() {
  if (held_.empty()) return;
  // The workers have heard of the end of the old sessions before they hear of
  // the new ones, which have the same ids.
  outbox_.Cut();
  const int64_t now_ns = options_.now_ns();
  const std::set<uint64_t> held = held_;
  for (uint64_t session_id : held) {
    Session& session = *sessions_.at(session_id);
    Session::Failover& failover = session.failover;
    if (failover.num_losses > kMaxLossesInARow) {
      Fail(session,
           absl::UnavailableError(absl::StrCat(
               failover.reason, " after ", session.schedule().generated(),
               " tokens; ", failover.num_losses,
               " targets in a row were lost without one token more")));
      continue;
    }
    if (failover.retry_ns <= now_ns) {
      failover.retry_ns = kNever;
      session.refused_by = failover.failed_on;
    }
    if (const uint64_t target_id = EqualTarget(session, /*except=*/{});
        target_id != 0) {
      held_.erase(session_id);
      TakeTarget(session, target_id);
      Open(session);
      TellMoved(session);
    } else if (failover.give_up_ns <= now_ns) {
      Fail(session,
           absl::UnavailableError(absl::StrCat(
               failover.reason, " after ", session.schedule().generated(),
               " tokens; no other with fingerprint ", failover.fingerprint,
               " and numerics_id ", failover.numerics_id, " had room within ",
               absl::FormatDuration(
                   absl::Nanoseconds(options_.failover_timeout_ns)))));
    } else {
      WakeAt(std::min(failover.give_up_ns, failover.retry_ns));
    }
  }
}

WorkerIds Dispatcher::KeptForHeld() const {
  WorkerIds kept;
  for (uint64_t session_id : held_) {
    const Session& session = *sessions_.at(session_id);
    for (const auto& [id, worker] : workers_) {
      if (!session.refused_by.contains(id) && CouldGoOn(session, id, worker)) {
        kept.insert(id);
      }
    }
  }
  return kept;
}

void Dispatcher::MoveFromDraining() {
  std::vector<Session*> moved;
  for (auto& [worker_id, worker] : workers_) {
    if (worker.ready) continue;
    const WorkerIds kept = KeptForHeld();
    for (uint64_t session_id : worker.sessions.InOrder()) {
      Session& session = *sessions_.at(session_id);
      if (session.draft_worker == worker_id) {
        if (placer_.LeastLoaded(WorkerRole::kDraft, session.request(),
                                session.refused_by) == 0) {
          continue;
        }
        worker.client->Close(session_id);
        LoseDraft(session);
        AttachDraft(session);
      } else if (const uint64_t target_id = EqualTarget(session, kept);
                 target_id != 0) {
        worker.client->Close(session_id);
        TakeOff(session);
        session.failover.moved = true;
        TakeTarget(session, target_id);  // the next one finds less room
        moved.push_back(&session);
      }
    }
  }
  if (moved.empty()) return;
  // As in ResumeHeld: the same ids are closed before they are opened.
  outbox_.Cut();
  for (Session* session : moved) {
    Open(*session);
    TellMoved(*session);
  }
}

}  // namespace nacre::coordinator
