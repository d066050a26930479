// Sessions whose target is gone, or about to go: they are held, with all that
// is committed, and go on where the same bits are computed. The client notices
// a pause at most.

#include <algorithm>
#include <string>
#include <utility>

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

}  // namespace

bool Dispatcher::IsEqualTarget(const Worker& worker, const Session& session) {
  return worker.info.role == WorkerRole::kTarget &&
         worker.info.fingerprint == session.failover.fingerprint &&
         worker.info.numerics_id == session.failover.numerics_id;
}

uint64_t Dispatcher::EqualTarget(const Session& session) const {
  absl::flat_hash_set<uint64_t> except = session.refused_by;
  for (const auto& [id, worker] : workers_) {
    if (!IsEqualTarget(worker, session)) except.insert(id);
  }
  return LeastLoaded(WorkerRole::kTarget, session.request(), except);
}

void Dispatcher::Hold(Session& session, std::string reason) {
  Worker& target = workers_.at(std::exchange(session.target_worker, 0));
  target.sessions.erase(session.id());
  if (session.follows_load()) --target.async_sessions;
  session.OnWorkerLeft(LaneOf(target));
  if (session.draft_worker != 0) {
    workers_.at(session.draft_worker).client->Close(session.id());
    LoseDraft(session);
  }
  if (const auto* step = session.EndHeldStep()) {
    observer_.OnRound(session.id(), *step, /*num_shown=*/0);
  }
  session.schedule().OnTargetLost();
  session.failover.reason = std::move(reason);
  session.failover.give_up_ns =
      options_.now_ns() + options_.failover_timeout_ns;
  held_.insert(session.id());
  observer_.OnMoved(session.id(), PlacementOf(session));
}

void Dispatcher::OnTargetFailure(Session& session, const absl::Status& status) {
  const bool is_running =
      session.schedule().generated() > 0 || session.failover.num_losses > 0;
  const uint64_t refuser = session.target_worker;
  session.refused_by.insert(refuser);
  // No room, or it has forgotten the session: another may do, or this one
  // later. Its device has failed: another may do.
  const bool may_wait = (absl::IsResourceExhausted(status) && is_running) ||
                        absl::IsAborted(status);
  const bool may_move =
      absl::IsResourceExhausted(status) || may_wait || absl::IsInternal(status);
  if (!may_move || (!may_wait && EqualTarget(session) == 0)) {
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
  session.failover.retry_ns = options_.now_ns() + kRetryNs;
}

void Dispatcher::ResumeHeld() {
  if (held_.empty()) return;
  // The workers have heard of the end of the old sessions before they hear of
  // the new ones, which have the same ids.
  Flush();
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
      session.refused_by.clear();
    }
    if (const uint64_t target_id = EqualTarget(session); target_id != 0) {
      held_.erase(session_id);
      Open(session, target_id);
      observer_.OnMoved(session_id, PlacementOf(session));
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

bool Dispatcher::HeldNeedRoom() const {
  for (uint64_t session_id : held_) {
    const Session& session = *sessions_.at(session_id);
    for (const auto& [id, worker] : workers_) {
      if (worker.ready && IsEqualTarget(worker, session) &&
          !session.refused_by.contains(id) &&
          ledger_.CouldHold(id, Need(worker, session.request()))) {
        return true;
      }
    }
  }
  return false;
}

void Dispatcher::MoveFromDraining() {
  for (auto& [worker_id, worker] : workers_) {
    if (worker.ready) continue;
    for (uint64_t session_id : SessionsOf(worker)) {
      Session& session = *sessions_.at(session_id);
      if (session.draft_worker == worker_id) {
        if (LeastLoaded(WorkerRole::kDraft, session.request(),
                        session.refused_by) == 0) {
          continue;
        }
        worker.client->Close(session_id);
        LoseDraft(session);
        AttachDraft(session);
      } else if (EqualTarget(session) != 0) {
        worker.client->Close(session_id);
        Hold(session,
             absl::StrCat("target worker ", worker.info.address, " drained"));
      }
    }
  }
  ResumeHeld();
}

}  // namespace nacre::coordinator
