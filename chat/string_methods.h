// The methods of strings, and what filters share with them. Results keep the
// marks of the user's text.
//
// Pure functions but for what they make in the context.

#ifndef CHAT_STRING_METHODS_H_
#define CHAT_STRING_METHODS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

bool HasStringMethod(std::string_view name);

// self.name(arguments); `self` is a string.
absl::StatusOr<Value> CallStringMethod(RenderContext& context,
                                       const Value& self, std::string_view name,
                                       const Arguments& arguments);

// str.strip() and its halves; `characters`: none, or a string.
absl::StatusOr<Value> Strip(RenderContext& context, const Text& text,
                            const Value& characters, bool left, bool right);
absl::StatusOr<Value> ReplaceAll(RenderContext& context, const Text& text,
                                 const Text& from, const Text& to,
                                 int64_t count);
// str.splitlines() without line ends.
absl::StatusOr<std::vector<Value>> SplitLines(RenderContext& context,
                                              const Text& text);
absl::StatusOr<Value> JoinTexts(RenderContext& context, const Text& separator,
                                const std::vector<Value>& texts);
enum class CaseForm { kUpper, kLower, kCapitalized, kTitle, kSwapped };
absl::StatusOr<Value> WithCase(RenderContext& context, const Text& text,
                               CaseForm form);
// Spaces on both sides up to `width` code points.
absl::StatusOr<Value> Center(RenderContext& context, const Text& text,
                             int64_t width, std::string_view fill);

}  // namespace nacre::chat

#endif  // CHAT_STRING_METHODS_H_
