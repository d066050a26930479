// Requests that wait for room: who may wait, who starts, who leaves.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/dispatcher.h"
#include "coordinator/policy_files.h"
#include "coordinator/session.h"

namespace nacre::coordinator {
namespace {

// The least KV that a request for targets of some kind has needed in vain. Who
// needs as much of that kind need not ask each target again.
class LeastNeed {
 public:
  void Note(const RequestSpec& request) {
    const int64_t need = Placer::TargetNeed(request);
    int64_t& least =
        needs_.try_emplace(Placer::KindOf(request), need).first->second;
    least = std::min(least, need);
  }
  bool Covers(const RequestSpec& request) const {
    const auto it = needs_.find(Placer::KindOf(request));
    return it != needs_.end() && Placer::TargetNeed(request) >= it->second;
  }

 private:
  absl::flat_hash_map<std::string, int64_t> needs_;
};

}  // namespace

absl::Status Dispatcher::CheckAdmissible(const RequestSpec& request) const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  absl::Status status = placer_.CheckServable(request, options_.now_ns());
  if (status.ok() && !options_.hold_without_target) {
    status = placer_.CheckReady(request);
  }
  if (!status.ok()) return status;
  std::vector<const WorkerInfo*> drafts;
  for (const auto& [id, worker] : workers_) {
    if (worker.info.role == WorkerRole::kDraft) drafts.push_back(&worker.info);
  }
  status = CheckPolicy(drafts, request);
  if (!status.ok()) return status;
  if (request.choice == 0 && request_ids_.contains(request.request_id)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "request_id \"", request.request_id, "\" is already running"));
  }
  return absl::OkStatus();
}

void Dispatcher::StartWaiting() {
  const WorkerIds for_held = KeptForHeld();
  // Room only shrinks here, and what is kept only grows along the queue, from
  // one Pop to the next.
  LeastNeed hopeless;
  while (true) {
    // Sessions that run go on before others start there.
    WorkerIds kept = for_held;
    LeastNeed keeps;
    uint64_t target_id = 0;
    const auto has_room = [&](uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      const RequestSpec& request = waiting_.at(id).request();
      if (hopeless.Covers(request)) return false;
      target_id = placer_.TargetFor(request, kept);
      if (target_id == 0) hopeless.Note(request);
      return target_id != 0;
    };
    const auto keep_free = [&](uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      const RequestSpec& request = waiting_.at(id).request();
      if (keeps.Covers(request)) return;
      keeps.Note(request);
      for (const auto& [worker_id, worker] : workers_) {
        if (placer_.CouldTake(worker_id, worker, request)) {
          kept.insert(worker_id);
        }
      }
    };
    const absl::optional<uint64_t> id = admission_.Pop(has_room, keep_free);
    if (!id.has_value()) return;
    const auto it = waiting_.find(*id);
    Waiting waiting = std::move(it->second);
    waiting_.erase(it);
    Launch(*id, std::move(waiting), target_id);
  }
}

Dispatcher::Waiting Dispatcher::Leave(uint64_t session_id) {
  const auto it = waiting_.find(session_id);
  Waiting waiting = std::move(it->second);
  waiting_.erase(it);
  admission_.Remove(session_id);
  Forget(session_id, waiting.request());
  // Who is behind it may have waited only for its turn.
  room_changed_ = true;
  return waiting;
}

void Dispatcher::Refuse(uint64_t session_id, const absl::Status& status) {
  const std::shared_ptr<Answer> answer = Leave(session_id).answer;
  outbox_.LastWord(answer,
                   [answer = answer.get(), status] { answer->Refuse(status); });
}

void Dispatcher::RefuseHopeless() {
  for (uint64_t id : admission_.queue()) {
    const absl::Status status =
        placer_.CheckServable(waiting_.at(id).request(), options_.now_ns());
    if (!status.ok()) Refuse(id, status);
  }
}

void Dispatcher::ExpireQueue(int64_t now_ns) {
  // Who came first is first in the queue: all have the same time.
  for (uint64_t id : admission_.queue()) {
    const Waiting& waiting = waiting_.at(id);
    const int64_t until_ns = After(waiting.since_ns, options_.queue_timeout_ns);
    if (until_ns > now_ns) {
      WakeAt(until_ns);
      return;
    }
    const std::string timeout =
        absl::FormatDuration(absl::Nanoseconds(options_.queue_timeout_ns));
    const absl::Status ready = placer_.CheckReady(waiting.request());
    Refuse(id, ready.ok()
                   ? absl::ResourceExhaustedError(absl::StrCat(
                         "no room within ", timeout, " in the queue"))
                   : absl::Status(ready.code(), absl::StrCat("after ", timeout,
                                                             " in the queue: ",
                                                             ready.message())));
  }
}

int64_t Dispatcher::reserved_kv_tokens(uint64_t worker_id) const {
  absl::MutexLock lock(&mu_);
  return ledger_.reserved_tokens(worker_id);
}

}  // namespace nacre::coordinator
