// The functions that a template calls by name: range, dict, namespace,
// raise_exception and strftime_now.
//
// Pure functions but for what they make in the context.

#ifndef CHAT_ENVIRONMENT_H_
#define CHAT_ENVIRONMENT_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

bool IsGlobal(std::string_view name);

// INVALID_ARGUMENT with the template's own message: raise_exception.
absl::StatusOr<Value> CallGlobal(RenderContext& context, std::string_view name,
                                 const Arguments& arguments);

}  // namespace nacre::chat

#endif  // CHAT_ENVIRONMENT_H_
