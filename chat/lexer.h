// Splits the source of a template into tokens, as jinja2's lexer does with
// trim_blocks and lstrip_blocks.
//
// A pure function.

#ifndef CHAT_LEXER_H_
#define CHAT_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace nacre::chat {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  // Of a string without quotes and escapes, of a name or operator its letters.
  std::string text;
  int64_t integer = 0;
  double real = 0;

  bool is_operator(std::string_view wanted) const {
    return kind == TokenKind::kOperator && text == wanted;
  }
  bool is_name(std::string_view wanted) const {
    return kind == TokenKind::kName && text == wanted;
  }
};

// The last token is kEnd. INVALID_ARGUMENT, with the line: a tag, comment or
// string does not end, brackets do not match, or a character begins no token.
// UNIMPLEMENTED: an integer over 63 bits, a name that is not ASCII.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// A description for messages: "'endfor'", "the end of the template".
std::string Describe(const Token& token);

}  // namespace nacre::chat

#endif  // CHAT_LEXER_H_
