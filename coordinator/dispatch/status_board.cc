#include "coordinator/dispatch/status_board.h"

#include <algorithm>
#include <string>

#include "coordinator/dispatch/placer.h"
#include "coordinator/fleet/kv_ledger.h"

namespace nacre::coordinator {

void StatusBoard::AddWorker(uint64_t id, std::shared_ptr<WorkerCell> worker) {
  absl::MutexLock lock(&mu_);
  if (worker->info.role == WorkerRole::kTarget) last_target_ = worker;
  if (worker->info.role == WorkerRole::kDraft) had_draft_ = true;
  workers_[id] = std::move(worker);
}

void StatusBoard::RemoveWorker(uint64_t id) {
  absl::MutexLock lock(&mu_);
  workers_.erase(id);
}

void StatusBoard::AddSession(uint64_t id,
                             std::shared_ptr<SessionCell> session) {
  absl::MutexLock lock(&mu_);
  sessions_[id] = std::move(session);
}

void StatusBoard::RemoveSession(uint64_t id) {
  absl::MutexLock lock(&mu_);
  sessions_.erase(id);
}

StatusBoard::Workers StatusBoard::AllWorkers() const {
  absl::MutexLock lock(&mu_);
  return workers_;
}

StatusBoard::Sessions StatusBoard::SessionsThat(bool run) const {
  Sessions found;
  {
    absl::MutexLock lock(&mu_);
    found.reserve(sessions_.size());
    for (const auto& [id, session] : sessions_) {
      if (session->running == run) found.emplace_back(id, session);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<WorkerStatus> StatusBoard::workers() const {
  std::vector<WorkerStatus> result;
  for (const auto& [id, worker] : AllWorkers()) {
    result.push_back({id, worker->info, worker->ready, worker->sessions,
                      worker->reserved_tokens, worker->max_sessions});
  }
  return result;
}

absl::optional<WorkerInfo> StatusBoard::model() const {
  std::shared_ptr<const WorkerCell> target;
  int64_t most = 0;
  bool all_say = true;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, worker] : workers_) {
      if (worker->info.role != WorkerRole::kTarget || !worker->ready) continue;
      if (target == nullptr) target = worker;
      most = std::max(most, worker->info.kv_capacity_tokens);
      all_say = all_say && worker->info.kv_capacity_tokens > 0;
    }
  }
  if (target == nullptr) return absl::nullopt;
  WorkerInfo info = target->info;
  // Sessions take whole blocks.
  info.kv_capacity_tokens = all_say ? most - most % KvLedger::kBlockTokens : 0;
  return info;
}

absl::optional<WorkerInfo> StatusBoard::last_target() const {
  std::shared_ptr<const WorkerCell> target;
  {
    absl::MutexLock lock(&mu_);
    target = last_target_;
  }
  if (target == nullptr) return absl::nullopt;
  return target->info;
}

bool StatusBoard::had_draft() const {
  absl::MutexLock lock(&mu_);
  return had_draft_;
}

std::vector<SessionStatus> StatusBoard::running() const {
  const Workers workers = AllWorkers();
  const auto address = [&workers](uint64_t id) {
    const auto it = workers.find(id);
    return it == workers.end() ? std::string() : it->second->info.address;
  };
  std::vector<SessionStatus> result;
  for (const auto& [id, session] : SessionsThat(/*run=*/true)) {
    const RequestSpec& request = *session->request;
    result.push_back({id, request.request_id, request.choice, request.method,
                      static_cast<int>(request.prompt_ids.size()),
                      session->generated, address(session->target_worker),
                      address(session->draft_worker), absl::nullopt});
  }
  return result;
}

std::vector<SessionStatus> StatusBoard::waiting() const {
  Sessions in_order = SessionsThat(/*run=*/false);
  // Ids rise as requests come. Those that resume an answer are ahead of the
  // others, as RequestQueue::Push has it.
  std::stable_partition(in_order.begin(), in_order.end(),
                        [](const auto& entry) {
                          return entry.second->request->resume != nullptr;
                        });
  std::vector<SessionStatus> result;
  for (const auto& [id, session] : in_order) {
    const RequestSpec& request = *session->request;
    SessionStatus status;
    status.id = id;
    status.request_id = request.request_id;
    status.choice = request.choice;
    status.method = request.method;
    status.prompt_tokens = static_cast<int>(request.prompt_ids.size());
    status.queue_position = static_cast<int>(result.size());
    result.push_back(std::move(status));
  }
  return result;
}

Demand StatusBoard::demand() const {
  Demand demand;
  demand.expects_draft = had_draft();
  for (const bool run : {false, true}) {
    for (const auto& [id, session] : SessionsThat(run)) {
      const RequestSpec& request = *session->request;
      const int64_t need = Placer::TargetNeed(request);
      if (session->target_worker == 0) {
        demand.target_tokens += need;
      } else if (session->draft_worker == 0 &&
                 request.method != speculation::Method::kAr) {
        demand.draft_tokens += need;
        ++demand.without_draft;
      }
    }
  }
  return demand;
}

}  // namespace nacre::coordinator
