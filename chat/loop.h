// The state of one `for`: what `loop` shows, and the items to come.
//
// Used by one thread at a time; belongs to the render's heap.

#ifndef CHAT_LOOP_H_
#define CHAT_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "chat/text.h"
#include "chat/value.h"

namespace nacre::chat {

struct Statement;
struct Scope;

struct Loop : Object {
  static constexpr Kind kKind = Kind::kLoop;

  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // around the loop
  std::vector<Value> items;
  size_t next = 0;  // of items
  // The loop's `if`; empty: there is none.
  std::function<absl::StatusOr<bool>(const Value&)> passes;
  std::deque<Value> ahead;  // passed the loop's `if`, not yet visited
  int64_t index0 = -1;
  int depth0 = 0;
  bool has_previous = false;
  Value previous;
  Value current;
  // What `changed` was given last.
  bool has_changed = false;
  std::vector<Value> last_changed;
};

}  // namespace nacre::chat

#endif  // CHAT_LOOP_H_
