// Workers that come and go, and who is paired with whom.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatcher.h"
#include "coordinator/policy_files.h"
#include "coordinator/session.h"

namespace nacre::coordinator {

absl::StatusOr<uint64_t> Dispatcher::AddWorker(
    WorkerInfo info, std::shared_ptr<WorkerClient> client) {
  absl::MutexLock lock(&mu_);
  for (const auto& [id, other] : workers_) {
    if (info.role == WorkerRole::kTarget &&
        other.info.role == WorkerRole::kTarget &&
        info.fingerprint != other.info.fingerprint) {
      return absl::FailedPreconditionError(
          absl::StrCat("MODEL_MISMATCH: target ", info.address,
                       " holds checkpoint ", info.fingerprint,
                       ", the attached targets hold ", other.info.fingerprint));
    }
  }
  const uint64_t id = next_worker_id_++;
  Worker& worker = workers_[id];
  worker.info = std::move(info);
  worker.client = std::move(client);
  for (const auto& [rows, duration_ns] : worker.info.step_times_ns) {
    worker.step_times.Add(rows, duration_ns);
  }
  ledger_.AddWorker(id, worker.info.kv_capacity_tokens);
  if (worker.info.role == WorkerRole::kDraft) {
    draft_room_changed_ = true;
  } else {
    room_changed_ = true;
    RefuseHopeless();
  }
  ResumeHeld();
  MoveFromDraining();
  Settle();
  return id;
}

void Dispatcher::DrainWorker(uint64_t worker_id) {
  absl::MutexLock lock(&mu_);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  worker->ready = false;
  MoveFromDraining();
  RefuseHopeless();
  Settle();
}

void Dispatcher::StateKept(uint64_t worker_id) {
  absl::MutexLock lock(&mu_);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  std::vector<uint64_t> kept(worker->sessions.begin(), worker->sessions.end());
  std::sort(kept.begin(), kept.end());
  worker->client->Keep(kept);
  worker->client->Flush();
}

void Dispatcher::ResumeWorker(uint64_t worker_id) {
  absl::MutexLock lock(&mu_);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr || worker->ready) return;
  worker->ready = true;
  (worker->info.role == WorkerRole::kDraft ? draft_room_changed_
                                           : room_changed_) = true;
  Settle();
}

void Dispatcher::RemoveWorker(uint64_t worker_id) {
  absl::MutexLock lock(&mu_);
  Worker* worker = FindWorker(worker_id);
  if (worker == nullptr) return;
  worker->ready = false;
  for (uint64_t session_id : SessionsOf(*worker)) {
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
  workers_.erase(worker_id);
  ledger_.RemoveWorker(worker_id);
  RefuseHopeless();
  Settle();
}

std::vector<uint64_t> Dispatcher::SessionsOf(const Worker& worker) const {
  std::vector<uint64_t> ids(worker.sessions.begin(), worker.sessions.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::optional<WorkerInfo> Dispatcher::model() const {
  absl::MutexLock lock(&mu_);
  for (const auto& [id, worker] : workers_) {
    if (worker.info.role == WorkerRole::kTarget && worker.ready) {
      return worker.info;
    }
  }
  return absl::nullopt;
}

int64_t Dispatcher::Need(const Worker& worker, const RequestSpec& request) {
  const int64_t need = TargetNeed(request);
  // A draft may stop short of the target's length.
  return worker.info.role == WorkerRole::kDraft
             ? std::min(need, KvLedger::Need(worker.info.context_length))
             : need;
}

void Dispatcher::ReleaseRoom(uint64_t worker_id, uint64_t session_id) {
  if (!ledger_.Release(worker_id, session_id)) return;
  const bool is_draft = workers_.at(worker_id).info.role == WorkerRole::kDraft;
  (is_draft ? draft_room_changed_ : room_changed_) = true;
}

uint64_t Dispatcher::LeastLoaded(
    WorkerRole role, const RequestSpec& request,
    const absl::flat_hash_set<uint64_t>& except) const {
  uint64_t best = 0;
  size_t best_load = 0;
  for (const auto& [id, worker] : workers_) {
    if (worker.info.role != role || !worker.ready || except.contains(id) ||
        (role == WorkerRole::kDraft && !CanRunPolicy(worker.info, request)) ||
        !ledger_.HasRoom(id, Need(worker, request))) {
      continue;
    }
    if (best == 0 || worker.sessions.size() < best_load) {
      best = id;
      best_load = worker.sessions.size();
    }
  }
  return best;
}

void Dispatcher::Open(Session& session, uint64_t target_id) {
  session.target_worker = target_id;
  Worker& target = workers_.at(target_id);
  target.sessions.insert(session.id());
  if (session.follows_load()) ++target.async_sessions;
  ledger_.Reserve(target_id, session.id(), Need(target, session.request()));
  if (session.schedule().wants_draft()) {
    const uint64_t draft_id =
        LeastLoaded(WorkerRole::kDraft, session.request(), session.refused_by);
    if (draft_id != 0) {
      TakeDraft(session, draft_id);
      session.schedule().AttachDraft();
    }
  }
  session.schedule().Replan(Costs(session));

  TargetOpening opening;
  opening.session_id = session.id();
  opening.token_ids = &session.schedule().committed();
  opening.request = &session.request();
  opening.plan = session.schedule().plan().target;
  opening.epoch = session.schedule().epoch();
  opening.has_draft = session.draft_worker != 0;
  opening.hidden_channel = session.hidden_channel();
  target.client->OpenTarget(opening);
  if (session.draft_worker != 0) OpenDraft(session, session.draft_worker);
}

void Dispatcher::OpenDraft(Session& session, uint64_t worker_id) {
  const Worker& draft = workers_.at(worker_id);
  const Worker& target = workers_.at(session.target_worker);
  DraftOpening opening;
  opening.session_id = session.id();
  opening.token_ids = &session.schedule().committed();
  opening.request = &session.request();
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
  draft.client->OpenDraft(opening);
}

void Dispatcher::AttachDraft(Session& session) {
  if (!session.schedule().wants_draft() || session.draft_worker != 0) return;
  const uint64_t id =
      LeastLoaded(WorkerRole::kDraft, session.request(), session.refused_by);
  Worker* target = FindWorker(session.target_worker);
  if (id == 0 || target == nullptr) return;
  TakeDraft(session, id);
  const uint32_t epoch = session.schedule().AttachDraft();
  OpenDraft(session, id);
  target->client->AttachDraft(
      session.id(), epoch,
      static_cast<int>(session.schedule().committed().size()));
  observer_.OnMoved(session.id(), PlacementOf(session));
}

void Dispatcher::TakeDraft(Session& session, uint64_t worker_id) {
  Worker& draft = workers_.at(worker_id);
  ledger_.Reserve(worker_id, session.id(), Need(draft, session.request()));
  draft.sessions.insert(session.id());
  session.draft_worker = worker_id;
}

void Dispatcher::AttachDrafts() {
  std::vector<uint64_t> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (uint64_t id : ids) AttachDraft(*sessions_.at(id));
}

void Dispatcher::LoseDraft(Session& session) {
  Worker& draft = workers_.at(std::exchange(session.draft_worker, 0));
  draft.sessions.erase(session.id());
  session.OnWorkerLeft(LaneOf(draft));
  session.schedule().OnDraftLost();
  if (Worker* target = FindWorker(session.target_worker)) {
    target->client->LoseDraft(session.id());
  }
  observer_.OnMoved(session.id(), PlacementOf(session));
}

}  // namespace nacre::coordinator
