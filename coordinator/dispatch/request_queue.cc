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
  LeastNeed keeps;
  uint64_t target_id = 0;
  const auto has_room = [&](uint64_t id) {
    const RequestSpec& request = queue_.request(id);
    if (hopeless_.Covers(request)) return false;
    target_id = queue_.placer_.TargetFor(request, kept);
    if (target_id == 0) hopeless_.Note(request);
    return target_id != 0;
  };
  const auto keep_free = [&](uint64_t id) {
    const RequestSpec& request = queue_.request(id);
    if (keeps.Covers(request)) return;
    keeps.Note(request);
    queue_.AddTargetsFor(request, &kept);
  };
  const absl::optional<uint64_t> id =
      queue_.admission_.Pop(has_room, keep_free);
  if (!id.has_value()) return absl::nullopt;
  return Start{*id, target_id, queue_.Take(*id)};
}

void RequestQueue::Pass::LeastNeed::Note(const RequestSpec& request) {
  const int64_t need = Placer::TargetNeed(request);
  if (const int choices = Placer::NumToPlace(request); choices > 1) {
    calls_.emplace(choices, need);
    return;
  }
  int64_t& least =
      needs_.try_emplace(Placer::KindOf(request), need).first->second;
  least = std::min(least, need);
}

bool RequestQueue::Pass::LeastNeed::Covers(const RequestSpec& request) const {
  const int64_t need = Placer::TargetNeed(request);
  const auto it = needs_.find(Placer::KindOf(request));
  return (it != needs_.end() && need >= it->second) ||
         calls_.contains({Placer::NumToPlace(request), need});
}

}  // namespace nacre::coordinator
