#include "worker/process/memory_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nacre::worker {

absl::Status CheckMemory(const model::MemoryNeeds& needs,
                         absl::Span<const MemoryLimit> limits) {
  const auto least =
      std::min_element(limits.begin(), limits.end(),
                       [](const MemoryLimit& a, const MemoryLimit& b) {
                         return a.limit < b.limit;
                       });
  if (least == limits.end() || needs.loaded_at_least() <= least->limit) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the weights need ", needs.loaded_at_least(),
      " bytes of memory, the limit is ", least->limit, " (", least->origin,
      "): they need fewer bits (--weights) or more memory"));
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
  return absl::StrCat(
      "the model may come to need ", needs.total(),
      " bytes of memory, of which ", needs.loaded(), " are weights; ", room,
      " are available (", least->origin,
      "): it may be slowed or killed. --max-memory limits the KV cache",
      needs.prefix_store > 0 ? ", --prefix-cache-size what is kept beside it"
                             : "");
}

std::string SavedWeightsLine(const kernels::SavedWeights& saved) {
  const int all = saved.matrices + saved.others;
  if (all == 0) return "";
  std::string line =
      absl::StrFormat("%d of %d large bf16 matrices are in 12 bits a weight",
                      saved.matrices, all);
  if (saved.matrices > 0) {
    absl::StrAppendFormat(&line, ", which takes %.3f GB less",
                          static_cast<double>(saved.bytes) * 1e-9);
  }
  if (saved.others > 0) {
    absl::StrAppendFormat(&line, "; %d have too many uncommon exponents",
                          saved.others);
  }
  return line;
}

}  // namespace nacre::worker
