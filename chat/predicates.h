// The tests of jinja2: "value is name(arguments)".
//
// Pure functions but for what they charge to the context.

#ifndef CHAT_PREDICATES_H_
#define CHAT_PREDICATES_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

bool IsTest(std::string_view name);

// UndefinedError, TypeError and ValueError as jinja2's; UNIMPLEMENTED: an
// unknown test, or `sameas` of two numbers or strings.
absl::StatusOr<bool> CallTest(RenderContext& context, std::string_view name,
                              const Value& value, const Arguments& arguments);

}  // namespace nacre::chat

#endif  // CHAT_PREDICATES_H_
