// "value.name" and "value[index]" in the sandbox of jinja2.
//
// Pure functions but for what they make in the context.

#ifndef CHAT_ATTRIBUTES_H_
#define CHAT_ATTRIBUTES_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

// value.name: an attribute of Python's type, else the item of that name, else
// undefined. What changes a list or dict is undefined and cannot be used.
absl::StatusOr<Value> GetAttribute(RenderContext& context, const Value& value,
                                   std::string_view name);
// value[index]: the item, else the attribute of that name, else undefined.
absl::StatusOr<Value> GetItem(RenderContext& context, const Value& value,
                              const Value& index);
// Only what Python's type has. `found` is false if it has nothing.
absl::StatusOr<Value> TypeAttribute(RenderContext& context, const Value& value,
                                    std::string_view name, bool* found);

}  // namespace nacre::chat

#endif  // CHAT_ATTRIBUTES_H_
