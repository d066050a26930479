// Values as text: Python's str() and repr(), and JSON as json.dumps writes it.
//
// Pure functions but for what they charge to the context.

#ifndef CHAT_PYTHON_TEXT_H_
#define CHAT_PYTHON_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/render_context.h"
#include "chat/text.h"
#include "chat/value.h"

namespace nacre::chat {

// repr() of a float: the shortest digits that read back as the same.
std::string FloatText(double value);

// Appends str(value). UNIMPLEMENTED: functions, loops and iterators, which
// Python shows with an address.
absl::Status AppendStr(RenderContext& context, const Value& value,
                       TextBuilder* out);
// str(value), a string.
absl::StatusOr<Value> Str(RenderContext& context, const Value& value);
absl::Status AppendRepr(RenderContext& context, const Value& value,
                        TextBuilder* out);
// repr(text) as a plain string, for messages.
std::string ReprOf(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// TypeError: a value that JSON has not. If any string of the value is a user's,
// all of the text is.
absl::StatusOr<Value> ToJson(RenderContext& context, const Value& value,
                             const JsonStyle& style);

}  // namespace nacre::chat

#endif  // CHAT_PYTHON_TEXT_H_
