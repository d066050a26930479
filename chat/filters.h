// The filters of jinja2: "value | name(arguments)".
//
// Pure functions but for what they make in the context.

#ifndef CHAT_FILTERS_H_
#define CHAT_FILTERS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

bool IsFilter(std::string_view name);

// UndefinedError, TypeError and ValueError as jinja2's; UNIMPLEMENTED: an
// unknown filter (`map` takes its name from a value).
absl::StatusOr<Value> CallFilter(RenderContext& context, std::string_view name,
                                 const Value& value,
                                 const Arguments& arguments);

}  // namespace nacre::chat

#endif  // CHAT_FILTERS_H_
