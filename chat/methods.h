// The methods of strings, dicts, lists and tuples.
//
// Pure functions but for what they make in the context.

#ifndef CHAT_METHODS_H_
#define CHAT_METHODS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

bool HasMethod(const Value& value, std::string_view name);

// self.name(arguments). TypeError and ValueError as Python's.
absl::StatusOr<Value> CallMethod(RenderContext& context, const Value& self,
                                 std::string_view name,
                                 const Arguments& arguments);

}  // namespace nacre::chat

#endif  // CHAT_METHODS_H_
