#include "coordinator/dispatch/request_queue.h"

#include <algorithm>
#include <utility>

namespace nacre::coordinator {

void RequestQueue::Push(uint64_t session_id, WaitingRequest waiting) {
  const RequestSpec& request = waiting.request();
  admission_.Push(session_id, Placer::ClassOf(request),
                  /*ahead=*/request.resume != nullptr);
  arrivals_.emplace(waiting.since_ns, session_id);
  needed_tokens_ += Placer::TargetNeed(request);
  waiting_[session_id] = std::move(waiting);
}

WaitingRequest RequestQueue::Take(uint64_t session_id) {
  const auto it = waiting_.find(session_id);
  WaitingRequest waiting = std::move(it->second);
  waiting_.erase(it);
  arrivals_.erase({waiting.since_ns, session_id});
  needed_tokens_ -= Placer::TargetNeed(waiting.request());
  return waiting;
}

WaitingRequest RequestQueue::Leave(uint64_t session_id) {
  admission_.Remove(session_id);
  return Take(session_id);
}

absl::optional<uint64_t> RequestQueue::First(
    absl::FunctionRef<bool(const RequestSpec&)> suits) const {
  return admission_.First([&](uint64_t id) { return suits(request(id)); });
}

int64_t RequestQueue::next_timeout_ns() const {
  return arrivals_.empty() ? kNever
                           : After(arrivals_.begin()->first, timeout_ns_);
}

absl::optional<uint64_t> RequestQueue::TimedOut(int64_t now_ns) const {
  if (next_timeout_ns() > now_ns || arrivals_.empty()) return absl::nullopt;
  return arrivals_.begin()->second;
}

void RequestQueue::AddTargetsFor(const RequestSpec& request,
                                 WorkerIds* targets) const {
  const WorkerIds narrow = placer_.TooNarrow(request);
  for (const auto& [id, worker] : fleet_.workers()) {
    if (narrow.contains(id)) continue;
    if (placer_.CouldTake(id, worker, request)) targets->insert(id);
  }
}

absl::optional<RequestQueue::Start> RequestQueue::Pass::Next() {
  // What is kept grows along the queue, from one Pop to the next.
  WorkerIds kept = kept_free_;
  MostNeed not_kept;
  uint64_t target_id = 0;
  const Placer& placer = queue_.placer_;
  const auto has_room = [&](uint64_t id) {
    const RequestSpec& request = queue_.request(id);
    const auto kinds = placer.KindsFor(request);
    if (with_room_.Excludes(kinds, Placer::TargetNeed(request))) return false;
    target_id = placer.TargetFor(request, kept);
    if (target_id != 0) return true;
    for (const std::string& kind : kinds) {
      with_room_.Note(kind, placer.MostRoom(kind, kept));
    }
    return false;
  };
  const auto keep_free = [&](uint64_t id) {
    const RequestSpec& request = queue_.request(id);
    const auto kinds = placer.KindsFor(request);
    if (not_kept.Excludes(kinds, Placer::TargetNeed(request))) return;
    queue_.AddTargetsFor(request, &kept);
    for (const std::string& kind : kinds) {
      not_kept.Note(kind, placer.MostCapacity(kind, kept));
    }
  };
  const absl::optional<uint64_t> id =
      queue_.admission_.Pop(has_room, keep_free);
  if (!id.has_value()) return absl::nullopt;
  return Start{*id, target_id, queue_.Take(*id)};
}

bool RequestQueue::Pass::MostNeed::Excludes(const std::string& kind,
                                            int64_t need) const {
  const auto it = most_.find(kind);
  return it != most_.end() && need > it->second;
}

bool RequestQueue::Pass::MostNeed::Excludes(absl::Span<const std::string> kinds,
                                            int64_t need) const {
  return Excludes("", need) ||
         std::all_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
           return Excludes(kind, need);
         });
}

}  // namespace nacre::coordinator
