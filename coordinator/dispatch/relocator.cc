#include "coordinator/dispatch/relocator.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::coordinator {

void Relocator::OnWorkerGone(uint64_t worker_id) {
  FleetWorker& worker = state_.fleet.at(worker_id);
  state_.fleet.SetReady(worker_id, false);
  for (uint64_t session_id : worker.sessions.InOrder()) {
    Session& session = *state_.sessions.at(session_id);
    if (session.draft_worker == worker_id) {
      pairing_.LoseDraft(session);
      pairing_.AttachDraft(session);
    } else {
      ++session.failover.num_losses;
      pairing_.TakeOff(session);
      state_.failover.Hold(
          session_id, &session.failover,
          absl::StrCat("target worker ", worker.info.address, " was lost"),
          state_.now_ns());
      OnHeld(session);
    }
  }
  if (worker.role == WorkerRole::kTarget) {
    state_.placer.OnTargetGone(worker.info, state_.now_ns());
  }
  state_.fleet.Remove(worker_id);
  draft_failures_.erase(worker_id);
  pairing_.RemoveLink(worker_id);
  state_.board.RemoveWorker(worker_id);
}

void Relocator::OnHeld(Session& session) {
  state_.held_changed = true;
  pairing_.TellMoved(session);
}

void Relocator::OnTargetFailure(Session& session, const absl::Status& status) {
  const uint64_t refuser = session.target_worker;
  if (!state_.failover.MayGoOn(&session.failover, refuser, status)) {
    desk_.Fail(session, status);
    return;
  }
  pairing_.TakeOff(session);
  state_.failover.HoldRefused(session.id(), &session.failover, refuser, status,
                              state_.now_ns());
  OnHeld(session);
}

void Relocator::OnDraftFailure(Session& session, const absl::Status& status) {
  const int64_t times = ++draft_failures_[session.draft_worker];
  if ((times & (times - 1)) == 0) {
    spdlog::warn("draft {} drafts no more for request {}: {}{}",
                 state_.fleet.at(session.draft_worker).info.address,
                 session.request().request_id, status.ToString(),
                 times == 1 ? "" : absl::StrCat(" (failure ", times, ")"));
  }
  session.failover.refused_by.insert(session.draft_worker);
  pairing_.LoseDraft(session);
  pairing_.AttachDraft(session);
}

void Relocator::ResumeHeld() {
  const std::vector<uint64_t> held = state_.failover.held();
  if (held.empty()) return;
  // The workers have heard of the end of the old sessions before they hear of
  // the new ones, which have the same ids.
  state_.outbox.Cut();
  const int64_t now_ns = state_.now_ns();
  for (uint64_t session_id : held) {
    Session& session = *state_.sessions.at(session_id);
    const Failover::Decision decision = state_.failover.Decide(
        session_id, session.schedule().generated(), now_ns);
    if (decision.target_id != 0) {
      state_.failover.Release(session_id);
      pairing_.TakeTarget(session, decision.target_id);
      pairing_.Open(session);
      pairing_.TellMoved(session);
    } else if (!decision.end.ok()) {
      desk_.Fail(session, decision.end);
    } else {
      state_.WakeAt(decision.wake_ns);
    }
  }
}

void Relocator::MoveFromDraining() {
  std::vector<Session*> moved;
  for (const uint64_t worker_id : state_.fleet.draining()) {
    const FleetWorker& worker = state_.fleet.at(worker_id);
    const WorkerIds kept = state_.failover.KeptForHeld();
    for (uint64_t session_id : worker.sessions.InOrder()) {
      Session& session = *state_.sessions.at(session_id);
      if (session.draft_worker == worker_id) {
        if (state_.placer.LeastLoaded(WorkerRole::kDraft, session.request(),
                                      session.failover.refused_by,
                                      session.schedule().committed_length()) ==
            0) {
          continue;
        }
        pairing_.link(worker_id)->Close(session_id);
        pairing_.LoseDraft(session);
        pairing_.AttachDraft(session);
      } else if (const uint64_t target_id =
                     state_.failover.EqualTarget(session.failover, kept);
                 target_id != 0) {
        pairing_.link(worker_id)->Close(session_id);
        pairing_.TakeOff(session);
        // The next one finds less room.
        pairing_.TakeTarget(session, target_id);
        moved.push_back(&session);
      }
    }
  }
  if (moved.empty()) return;
  // As in ResumeHeld: the same ids are closed before they are opened.
  state_.outbox.Cut();
  for (Session* session : moved) {
    pairing_.Open(*session);
    pairing_.TellMoved(*session);
  }
}

void Relocator::Settle() {
  if (std::exchange(state_.held_changed, false) || state_.room_changed) {
    ResumeHeld();
  }
  if (state_.room_changed || state_.draft_room_changed) MoveFromDraining();
  if (std::exchange(state_.room_changed, false)) desk_.StartWaiting();
  if (std::exchange(state_.draft_room_changed, false)) {
    pairing_.AttachDrafts();
  }
  kv_reporter_.ReportNews();
}

}  // namespace nacre::coordinator
