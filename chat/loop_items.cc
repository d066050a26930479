#include "chat/loop_items.h"

#include <limits>

#include "common/status_macros.h"

namespace nacre::chat {

absl::StatusOr<bool> LookAhead(Loop& loop, size_t count) {
  while (loop.ahead.size() < count && loop.next < loop.items.size()) {
    const Value item = loop.items[loop.next++];
    if (loop.passes != nullptr) {
      NACRE_ASSIGN_OR_RETURN(const bool passes, loop.passes(item));
      if (!passes) continue;
    }
    loop.ahead.push_back(item);
  }
  return loop.ahead.size() >= count;
}

absl::StatusOr<int64_t> LoopLength(Loop& loop) {
  NACRE_RETURN_IF_ERROR(
      LookAhead(loop, std::numeric_limits<size_t>::max()).status());
  return loop.index0 + 1 + static_cast<int64_t>(loop.ahead.size());
}

}  // namespace nacre::chat
