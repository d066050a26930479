#include "coordinator/fleet/fleet.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "coordinator/fleet/model_mismatch.h"

namespace nacre::coordinator {

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved from.
absl::StatusOr<uint64_t> Fleet::Add(WorkerInfo info) {
  const bool is_target = info.role == WorkerRole::kTarget;
  for (const auto& [id, other] : workers_) {
    if (is_target && other.role == WorkerRole::kTarget) {
      NACRE_RETURN_IF_ERROR(CheckSameModel(info, other.info));
    }
  }
  const uint64_t id = next_id_++;
  ++version_;
  const FleetWorker& worker =
      workers_.try_emplace(id, std::move(info)).first->second;
  worker.cell->max_sessions = is_target ? max_running_ : 0;
  ledger_.AddWorker(id, worker.info.kv_capacity_tokens, worker.info.grants_kv,
                    worker.cell->max_sessions);
  if (worker.info.grants_kv) granting_.insert(id);
  LoadsOf(worker.role).insert({0, id});
  if (!is_target) drafts_.push_back(&worker.info);
  if (is_target &&
      worker.info.fingerprint !=
          std::exchange(target_fingerprint_, worker.info.fingerprint)) {
    for (auto& [other_id, other] : workers_) {
      other.acceptance = speculation::AcceptanceEstimator();
      other.ranks = speculation::RankHistogram();
    }
  }
  return id;
}

void Fleet::Remove(uint64_t id) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  ++version_;
  const FleetWorker& worker = it->second;
  LoadsOf(worker.role).erase({worker.load(), id});
  drafts_.erase(std::remove(drafts_.begin(), drafts_.end(), &worker.info),
                drafts_.end());
  draining_.erase(id);
  granting_.erase(id);
  workers_.erase(it);
  ledger_.RemoveWorker(id);
}

void Fleet::SetReady(uint64_t id, bool ready) {
  workers_.at(id).ready = ready;
  ++version_;
  if (ready) {
    draining_.erase(id);
  } else {
    draining_.insert(id);
  }
}

bool Fleet::SetGrant(uint64_t id, uint64_t serial, int64_t tokens,
                     int other_sessions) {
  FleetWorker& worker = workers_.at(id);
  LoadsOf(worker.role).erase({worker.load(), id});
  worker.other_sessions = other_sessions;
  LoadsOf(worker.role).insert({worker.load(), id});
  const int64_t before = ledger_.granted_tokens(id);
  worker.grant_serial = serial;
  ledger_.SetGrant(id, tokens);
  return ledger_.granted_tokens(id) > before;
}

void Fleet::Seat(uint64_t worker_id, uint64_t session_id, int64_t need,
                 bool follows_load) {
  FleetWorker& worker = workers_.at(worker_id);
  ledger_.Reserve(worker_id, session_id, need);
  worker.cell->reserved_tokens = ledger_.reserved_tokens(worker_id);
  LoadsOf(worker.role).erase({worker.load(), worker_id});
  worker.sessions.insert(session_id);
  LoadsOf(worker.role).insert({worker.load(), worker_id});
  if (worker.role == WorkerRole::kTarget && follows_load) {
    ++worker.async_sessions;
  }
}

void Fleet::Unseat(uint64_t worker_id, uint64_t session_id, bool follows_load) {
  FleetWorker& worker = workers_.at(worker_id);
  LoadsOf(worker.role).erase({worker.load(), worker_id});
  worker.sessions.erase(session_id);
  LoadsOf(worker.role).insert({worker.load(), worker_id});
  if (worker.role == WorkerRole::kTarget && follows_load) {
    --worker.async_sessions;
  }
}

absl::optional<WorkerRole> Fleet::Release(uint64_t worker_id,
                                          uint64_t session_id) {
  if (!ledger_.Release(worker_id, session_id)) return absl::nullopt;
  const FleetWorker& worker = workers_.at(worker_id);
  worker.cell->reserved_tokens = ledger_.reserved_tokens(worker_id);
  return worker.role;
}

speculation::StepCosts Fleet::CostsOn(uint64_t target_id, uint64_t draft_id,
                                      bool follows_load) {
  speculation::StepCosts costs;
  if (const FleetWorker* target = Find(target_id)) {
    costs.target = target->step_times.get();
    costs.other_sessions = static_cast<int>(target->load()) - 1;
    costs.other_async_sessions =
        target->async_sessions - (follows_load ? 1 : 0);
  }
  if (FleetWorker* draft = Find(draft_id)) {
    if (!draft->step_times->empty()) {
      costs.draft_token_ns = draft->TokenNs();
      costs.draft_rows_ns = draft->rows_ns;
    }
    // A step that serves others goes on for them.
    costs.abandons_steps = draft->info.abandons_steps && draft->load() == 1;
  }
  return costs;
}

}  // namespace nacre::coordinator
