#include "coordinator/admission.h"

#include <algorithm>

namespace nacre::coordinator {

bool Admission::Remove(uint64_t id) {
  const auto it =
      std::find_if(queue_.begin(), queue_.end(),
                   [id](const Entry& entry) { return entry.id == id; });
  if (it == queue_.end()) return false;
  queue_.erase(it);
  return true;
}

absl::optional<uint64_t> Admission::Pop(
    absl::FunctionRef<bool(uint64_t id)> has_room,
    absl::FunctionRef<void(uint64_t id)> keep_free) {
  if (running_ >= max_running_) return absl::nullopt;
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (has_room(it->id)) {
      const uint64_t id = it->id;
      for (auto passed = queue_.begin(); passed != it; ++passed) {
        ++passed->passes;
      }
      queue_.erase(it);
      ++running_;
      return id;
    }
    if (it->passes >= kMaxPasses) keep_free(it->id);
  }
  return absl::nullopt;
}

std::vector<uint64_t> Admission::queue() const {
  std::vector<uint64_t> ids;
  ids.reserve(queue_.size());
  for (const Entry& entry : queue_) ids.push_back(entry.id);
  return ids;
}

}  // namespace nacre::coordinator
