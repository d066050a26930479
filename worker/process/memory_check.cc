#include "worker/process/memory_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nacre::worker {

absl::Status CheckMemory(const model::MemoryNeeds& needs,
                         absl::Span<const MemoryLimit> limits) {
  for (const MemoryLimit& limit : limits) {
    if (needs.loaded() <= limit.limit) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the weights need ", needs.loaded(), " bytes of memory, the limit is ",
        limit.limit, " (", limit.origin,
        "): they need fewer bits (--weights) or more memory"));
  }
  return absl::OkStatus();
}

std::string MemoryWarning(const model::MemoryNeeds& needs,
                          absl::Span<const MemoryLimit> limits) {
  const MemoryLimit* least = nullptr;
  int64_t room = 0;
  for (const MemoryLimit& limit : limits) {
    const int64_t its_room = std::min(limit.limit, limit.available);
    if (least != nullptr && its_room >= room) continue;
    least = &limit;
    room = its_room;
  }
  if (least == nullptr || needs.total() <= room) return "";
  return absl::StrCat("the model may come to need ", needs.total(),
                      " bytes of memory, of which ", needs.loaded(),
                      " are weights; ", room, " are available (", least->origin,
                      "): it may be killed. --max-memory limits the KV cache");
}

}  // namespace nacre::worker
