// The variables of a render.
//
// Used by one thread at a time.

#ifndef CHAT_SCOPE_H_
#define CHAT_SCOPE_H_

#include <string_view>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace nacre::chat {

// Variables of one block; it sees those of the blocks around it.
struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, const Value& value);
};

}  // namespace nacre::chat

#endif  // CHAT_SCOPE_H_
