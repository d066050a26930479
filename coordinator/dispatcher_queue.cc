// Requests that wait for room: who may wait, who starts, who leaves.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/dispatcher.h"
#include "coordinator/policy_files.h"
#include "coordinator/session.h"

namespace nacre::coordinator {

int64_t Dispatcher::TargetNeed(const RequestSpec& request) {
  return KvLedger::Need(static_cast<int64_t>(request.prompt_ids.size()) +
                        request.max_tokens);
}

absl::Status Dispatcher::CheckAdmissible(const RequestSpec& request) const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (absl::Status status = CheckServable(request); !status.ok()) return status;
  std::vector<const WorkerInfo*> drafts;
  for (const auto& [id, worker] : workers_) {
    if (worker.info.role == WorkerRole::kDraft) drafts.push_back(&worker.info);
  }
  if (absl::Status status = CheckPolicy(drafts, request); !status.ok()) {
    return status;
  }
  if (request.choice == 0 && request_ids_.contains(request.request_id)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "request_id \"", request.request_id, "\" is already running"));
  }
  return absl::OkStatus();
}

absl::Status Dispatcher::CheckServable(const RequestSpec& request) const {
  const int64_t need = TargetNeed(request);
  bool is_ready = false;
  int64_t largest = 0;
  for (const auto& [id, worker] : workers_) {
    if (worker.info.role != WorkerRole::kTarget || !worker.ready) continue;
    if (!request.fingerprint.empty() &&
        request.fingerprint != worker.info.fingerprint) {
      return absl::UnavailableError(
          "the served model changed while the request waited");
    }
    if (ledger_.CouldHold(id, need)) return absl::OkStatus();
    is_ready = true;
    largest = std::max(largest, ledger_.capacity_tokens(id));
  }
  if (!is_ready) return absl::UnavailableError("no target worker is ready");
  return absl::ResourceExhaustedError(absl::StrCat(
      "a prompt of ", request.prompt_ids.size(), " tokens and max_tokens ",
      request.max_tokens, " need KV for ", need,
      " tokens, the largest target has it for ", largest));
}

void Dispatcher::StartWaiting() {
  const auto has_room = [this](int64_t need)
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                              for (const auto& [id, worker] : workers_) {
                                if (worker.info.role == WorkerRole::kTarget &&
                                    worker.ready && ledger_.HasRoom(id, need)) {
                                  return true;
                                }
                              }
                              return false;
                            };
  // Who has begun goes on before others begin.
  if (HeldNeedRoom()) {
    room_changed_ = true;
    return;
  }
  while (const auto id = admission_.Pop(has_room)) {
    const auto it = waiting_.find(*id);
    Waiting waiting = std::move(it->second);
    waiting_.erase(it);
    Launch(*id, std::move(waiting));
  }
}

Dispatcher::Waiting Dispatcher::Leave(uint64_t session_id) {
  const auto it = waiting_.find(session_id);
  Waiting waiting = std::move(it->second);
  waiting_.erase(it);
  admission_.Remove(session_id);
  Forget(session_id, waiting.request);
  // Who is behind it may have waited only for its turn.
  room_changed_ = true;
  return waiting;
}

void Dispatcher::Refuse(uint64_t session_id, const absl::Status& status) {
  const Waiting waiting = Leave(session_id);
  waiting.sink->OnError(status);
  observer_.OnRefused(waiting.request, status);
}

void Dispatcher::RefuseHopeless() {
  const bool is_ready =
      std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) {
        return entry.second.info.role == WorkerRole::kTarget &&
               entry.second.ready;
      });
  // Without a target they wait for one, as long as for room.
  if (!is_ready) return;
  for (uint64_t id : admission_.queue()) {
    const absl::Status status = CheckServable(waiting_.at(id).request);
    if (!status.ok()) Refuse(id, status);
  }
}

void Dispatcher::ExpireQueue(int64_t now_ns) {
  // Who came first is first in the queue: all have the same time.
  for (uint64_t id : admission_.queue()) {
    const Waiting& waiting = waiting_.at(id);
    const int64_t until_ns = waiting.since_ns + options_.queue_timeout_ns;
    if (until_ns > now_ns) {
      WakeAt(until_ns);
      return;
    }
    const absl::Status servable = CheckServable(waiting.request);
    Refuse(id, absl::IsUnavailable(servable)
                   ? servable
                   : absl::ResourceExhaustedError(absl::StrCat(
                         "no room within ",
                         absl::FormatDuration(
                             absl::Nanoseconds(options_.queue_timeout_ns)),
                         " in the queue")));
  }
}

std::vector<SessionStatus> Dispatcher::queued() const {
  absl::MutexLock lock(&mu_);
  std::vector<SessionStatus> result;
  for (uint64_t id : admission_.queue()) {
    const RequestSpec& request = waiting_.at(id).request;
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

int64_t Dispatcher::reserved_kv_tokens(uint64_t worker_id) const {
  absl::MutexLock lock(&mu_);
  return ledger_.reserved_tokens(worker_id);
}

}  // namespace nacre::coordinator
