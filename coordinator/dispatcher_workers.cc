// Workers that come and go, and who is paired with whom.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "coordinator/dispatcher.h"
#include "coordinator/dispatcher_turn.h"
#include "coordinator/model_mismatch.h"
#include "coordinator/session.h"

namespace nacre::coordinator {

absl::StatusOr<uint64_t> Dispatcher::AddTarget(
    WorkerInfo info, std::shared_ptr<TargetLink> link) {
  return AddWorker(std::move(info), NotedLink(std::move(link), &outbox_));
}

absl::StatusOr<uint64_t> Dispatcher::AddDraft(WorkerInfo info,
                                              std::shared_ptr<DraftLink> link) {
  return AddWorker(std::move(info), NotedLink(std::move(link), &outbox_));
}

absl::StatusOr<uint64_t> Dispatcher::AddWorker(WorkerInfo info,
                                               NotedLink link) {
  NACRE_CHECK(info.role == link.role(), "a worker with a link of its kind");
  Turn turn(this);
  for (const auto& [id, other] : workers_) {
    if (info.role == WorkerRole::kTarget &&
        other.info.role == WorkerRole::kTarget) {
      NACRE_RETURN_IF_ERROR(CheckSameModel(info, other.info));
    }
  }
  const uint64_t id = next_worker_id_++;
  const Worker& worker =
      workers_.try_emplace(id, std::move(info), std::move(link)).first->second;
  board_.AddWorker(id, worker.cell);
  ledger_.AddWorker(id, worker.info.kv_capacity_tokens);
  if (worker.info.role == WorkerRole::kDraft) {
    draft_room_changed_ = true;
  } else {
    room_changed_ = true;
    if (placer_.last_target().has_value() &&
        placer_.last_target()->fingerprint != worker.info.fingerprint) {
      for (auto& [other_id, other] : workers_) {
        other.acceptance = speculation::AcceptanceEstimator();
      }
    }
    placer_.OnTargetAdded(worker.info);
    RefuseHopeless();
  }
  Settle();
  return id;
}

void Dispatcher::DrainWorker(uint64_t worker_id) {
  Turn turn(this);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  worker->ready = false;
  MoveFromDraining();
  RefuseHopeless();
  Settle();
}

void Dispatcher::StateKept(uint64_t worker_id) {
  Turn turn(this);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  worker->client->Keep(worker->sessions.InOrder());
}

void Dispatcher::ResumeWorker(uint64_t worker_id) {
  Turn turn(this);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr || worker->ready) return;
  worker->ready = true;
  (worker->info.role == WorkerRole::kDraft ? draft_room_changed_
                                           : room_changed_) = true;
  Settle();
}

void Dispatcher::RemoveWorker(uint64_t worker_id) {
  Turn turn(this);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  worker->ready = false;
  for (uint64_t session_id : worker->sessions.InOrder()) {
    Session& session = *sessions_.at(session_id);
    if (session.draft_worker == worker_id) {
      LoseDraft(session);
      AttachDraft(session);
    } else {
      ++session.failover.num_losses;
      Hold(session,
           absl::StrCat("target worker ", worker->info.address, " was lost"));
    }
  }
  if (worker->info.role == WorkerRole::kTarget) {
    placer_.OnTargetGone(worker->info, options_.now_ns());
  }
  workers_.erase(worker_id);
  board_.RemoveWorker(worker_id);
  ledger_.RemoveWorker(worker_id);
  RefuseHopeless();
  Settle();
}

absl::optional<WorkerInfo> Dispatcher::expected_model() const {
  absl::optional<WorkerInfo> ready = model();
  if (ready.has_value() || !options_.hold_without_target) return ready;
  return board_.last_target();
}

void Dispatcher::ReleaseRoom(uint64_t worker_id, uint64_t session_id) {
  if (!ledger_.Release(worker_id, session_id)) return;
  const bool is_draft = workers_.at(worker_id).info.role == WorkerRole::kDraft;
  (is_draft ? draft_room_changed_ : room_changed_) = true;
}

void Dispatcher::TakeTarget(Session& session, uint64_t worker_id) {
  Worker& target = workers_.at(worker_id);
  ledger_.Reserve(worker_id, session.id(),
                  Placer::Need(target, session.request()));
  target.sessions.insert(session.id());
  if (session.follows_load()) ++target.async_sessions;
  session.target_worker = worker_id;
}

void Dispatcher::Open(Session& session) {
  Worker& target = workers_.at(session.target_worker);
  if (session.schedule().wants_draft()) {
    const uint64_t draft_id = placer_.LeastLoaded(
        WorkerRole::kDraft, session.request(), session.refused_by);
    if (draft_id != 0) {
      TakeDraft(session, draft_id);
      session.schedule().AttachDraft();
    }
  }
  NoteDraft(session);
  // The first plan is searched for here, under the lock: a target that is
  // opened without one would step alone until it comes. A later one follows at
  // once.
  if (session.schedule().wants_draft() && !session.schedule().has_plan()) {
    session.schedule().Replan(Costs(session));
  } else {
    PlanLater(session);
  }

  TargetOpening opening;
  opening.session_id = session.id();
  opening.request = session.shared_request();
  opening.generated = session.schedule().committed();
  opening.plan = session.schedule().plan().target;
  opening.epoch = session.schedule().epoch();
  opening.has_draft = session.draft_worker != 0;
  opening.hidden_channel = session.hidden_channel();
  target.client.target().OpenTarget(opening);
  if (session.draft_worker != 0) OpenDraft(session, session.draft_worker);
}

void Dispatcher::OpenDraft(Session& session, uint64_t worker_id) {
  Worker& draft = workers_.at(worker_id);
  const Worker& target = workers_.at(session.target_worker);
  DraftOpening opening;
  opening.session_id = session.id();
  opening.request = session.shared_request();
  opening.generated = session.schedule().committed();
  opening.end_ids = session.request().stop_token_ids;
  if (!session.request().ignore_eos) {
    opening.end_ids.insert(opening.end_ids.end(),
                           target.info.eos_token_ids.begin(),
                           target.info.eos_token_ids.end());
  }
  opening.vocab_limit = std::min(
      {draft.info.model_vocab_size, target.info.model_vocab_size,
       draft.info.tokenizer_vocab_size, options_.tokenizer->vocab_size()});
  opening.plan = session.schedule().plan().draft;
  opening.epoch = session.schedule().epoch();
  if (session.hidden_channel() != 0) {
    opening.hidden_address = target.info.address;
    opening.hidden_channel = session.hidden_channel();
  }
  draft.client.draft().OpenDraft(opening);
}

void Dispatcher::AttachDraft(Session& session) {
  if (!session.schedule().wants_draft() || session.draft_worker != 0) return;
  const uint64_t id = placer_.LeastLoaded(WorkerRole::kDraft, session.request(),
                                          session.refused_by);
  Worker* target = FindWorker(session.target_worker);
  if (id == 0 || target == nullptr) return;
  TakeDraft(session, id);
  const uint32_t epoch = session.schedule().AttachDraft();
  OpenDraft(session, id);
  target->client.target().AttachDraft(session.id(), epoch,
                                      session.schedule().committed_length());
  TellMoved(session);
}

void Dispatcher::TakeDraft(Session& session, uint64_t worker_id) {
  Worker& draft = workers_.at(worker_id);
  ledger_.Reserve(worker_id, session.id(),
                  Placer::Need(draft, session.request()));
  draft.sessions.insert(session.id());
  session.draft_worker = worker_id;
  session.schedule().SetPairAlpha(draft.acceptance.alpha());
  NoteDraft(session);
}

void Dispatcher::NoteDraft(const Session& session) {
  if (session.schedule().wants_draft() && session.target_worker != 0 &&
      session.draft_worker == 0) {
    undrafted_.insert(session.id());
  } else {
    undrafted_.erase(session.id());
  }
}

void Dispatcher::AttachDrafts() {
  // Where one finds no room, those that need as much find none either, unless
  // it was the session that was too particular.
  int64_t hopeless = std::numeric_limits<int64_t>::max();
  for (auto it = undrafted_.begin(); it != undrafted_.end();) {
    Session& session = *sessions_.at(*it++);  // attaching takes it out
    const int64_t need = Placer::TargetNeed(session.request());
    if (need >= hopeless) continue;
    AttachDraft(session);
    if (session.draft_worker == 0 && session.refused_by.empty() &&
        !session.request().policy.needs_file()) {
      hopeless = need;
      if (need <= KvLedger::kBlockTokens) return;
    }
  }
}

void Dispatcher::LoseDraft(Session& session) {
  Worker& draft = workers_.at(session.draft_worker.exchange(0));
  NoteDraft(session);
  draft.sessions.erase(session.id());
  WorkerLeft(session, draft);
  session.schedule().OnDraftLost();
  if (Worker* target = FindWorker(session.target_worker)) {
    target->client.target().LoseDraft(session.id());
  }
  TellMoved(session);
}

void Dispatcher::WorkerLeft(Session& session, const Worker& worker) {
  session.OnWorkerLeft(worker.info.role);
  outbox_.Later(session.answer(),
                [answer = session.answer().get(), lane = worker.lane()] {
                  answer->OnWorkerLeft(lane);
                });
}

}  // namespace nacre::coordinator
