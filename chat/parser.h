// Parses the source of a template. The grammar and its oddities are jinja2's.
//
// A pure function.

#ifndef CHAT_PARSER_H_
#define CHAT_PARSER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "chat/ast.h"
#include "chat/chat_template.h"

namespace nacre::chat {

// INVALID_ARGUMENT: no template, or no UTF-8. UNIMPLEMENTED: a tag, filter,
// test, method or function that is not supported. RESOURCE_EXHAUSTED: over a
// limit. Messages begin with the line.
absl::StatusOr<std::shared_ptr<const Program>> ParseProgram(
    std::string_view source, const Limits& limits);

}  // namespace nacre::chat

#endif  // CHAT_PARSER_H_
