#include "coordinator/fleet/kv_ledger.h"

#include <algorithm>

namespace nacre::coordinator {

const KvLedger::Worker* KvLedger::Find(uint64_t worker_id) const {
  const auto it = workers_.find(worker_id);
  return it == workers_.end() ? nullptr : &it->second;
}

bool KvLedger::IsFull(const Worker& worker) {
  return worker.max_sessions > 0 && worker.num_sessions >= worker.max_sessions;
}

void KvLedger::AddWorker(uint64_t worker_id, int64_t capacity_tokens,
                         bool grants, int max_sessions) {
  Worker& worker = workers_[worker_id];
  worker.capacity_tokens = capacity_tokens;
  worker.granted_tokens = grants ? 0 : capacity_tokens;
  worker.max_sessions = max_sessions;
}

void KvLedger::SetGrant(uint64_t worker_id, int64_t tokens) {
  Worker& worker = workers_.at(worker_id);
  worker.granted_tokens = std::min(tokens, worker.capacity_tokens);
}

void KvLedger::RemoveWorker(uint64_t worker_id) { workers_.erase(worker_id); }

bool KvLedger::CouldHold(uint64_t worker_id, int64_t need) const {
  const Worker* worker = Find(worker_id);
  return worker != nullptr &&
         (worker->capacity_tokens == 0 || need <= worker->capacity_tokens);
}

int64_t KvLedger::MostSessions(uint64_t worker_id, int64_t need) const {
  const Worker* worker = Find(worker_id);
  if (worker == nullptr) return 0;
  int64_t most = worker->max_sessions > 0 ? worker->max_sessions : kAnyNumber;
  if (worker->capacity_tokens > 0) {
    most = std::min(most, worker->capacity_tokens / need);
  }
  return most;
}

int64_t KvLedger::room_tokens(uint64_t worker_id) const {
  const Worker* worker = Find(worker_id);
  if (worker == nullptr || IsFull(*worker)) return -1;
  if (worker->capacity_tokens == 0) return kAnyNeed;
  return std::max<int64_t>(worker->granted_tokens - worker->reserved_tokens,
                           -1);
}

bool KvLedger::Reserve(uint64_t worker_id, uint64_t session_id, int64_t need) {
  if (!HasRoom(worker_id, need)) return false;
  Worker& worker = workers_.at(worker_id);
  worker.sessions[session_id].push_back(need);
  worker.reserved_tokens += need;
  ++worker.num_sessions;
  return true;
}

bool KvLedger::Release(uint64_t worker_id, uint64_t session_id) {
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return false;
  Worker& worker = found->second;
  const auto it = worker.sessions.find(session_id);
  if (it == worker.sessions.end()) return false;
  worker.reserved_tokens -= it->second.front();
  --worker.num_sessions;
  it->second.erase(it->second.begin());
  if (it->second.empty()) worker.sessions.erase(it);
  return true;
}

int KvLedger::num_open(uint64_t worker_id, uint64_t session_id) const {
  const Worker* worker = Find(worker_id);
  if (worker == nullptr) return 0;
  const auto it = worker->sessions.find(session_id);
  return it == worker->sessions.end() ? 0 : static_cast<int>(it->second.size());
}

bool KvLedger::is_full(uint64_t worker_id) const {
  const Worker* worker = Find(worker_id);
  return worker != nullptr && IsFull(*worker);
}

int64_t KvLedger::capacity_tokens(uint64_t worker_id) const {
  const Worker* worker = Find(worker_id);
  return worker == nullptr ? 0 : worker->capacity_tokens;
}

int64_t KvLedger::granted_tokens(uint64_t worker_id) const {
  const Worker* worker = Find(worker_id);
  return worker == nullptr ? 0 : worker->granted_tokens;
}

int64_t KvLedger::reserved_tokens(uint64_t worker_id) const {
  const Worker* worker = Find(worker_id);
  return worker == nullptr ? 0 : worker->reserved_tokens;
}

}  // namespace nacre::coordinator
