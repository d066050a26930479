// Reads ahead in a loop.
//
// Used by one thread at a time.

#ifndef CHAT_LOOP_ITEMS_H_
#define CHAT_LOOP_ITEMS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "chat/loop.h"

namespace nacre::chat {

// Moves items to loop.ahead until it has `count` or there are no more. False:
// there are fewer. Errors are those of the loop's `if`.
absl::StatusOr<bool> LookAhead(Loop& loop, size_t count);
// How many items the loop visits in all.
absl::StatusOr<int64_t> LoopLength(Loop& loop);

}  // namespace nacre::chat

#endif  // CHAT_LOOP_ITEMS_H_
