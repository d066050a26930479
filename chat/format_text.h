// Python's "%" of a text: printf's directives.
//
// A pure function but for what it makes in the context.

#ifndef CHAT_FORMAT_TEXT_H_
#define CHAT_FORMAT_TEXT_H_

#include "absl/status/statusor.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

// %s, %d, %i, %f with a precision, and %%. TypeError: too few or too many
// values, or no number; UNIMPLEMENTED: other directives, flags and widths.
absl::StatusOr<Value> PercentFormat(RenderContext& context, const Text& format,
                                    const Value& values);

}  // namespace nacre::chat

#endif  // CHAT_FORMAT_TEXT_H_
