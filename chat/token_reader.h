// Walks over tokens, with the errors of a parser.
//
// Used by one thread at a time.

#ifndef CHAT_TOKEN_READER_H_
#define CHAT_TOKEN_READER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "chat/concat.h"
#include "chat/lexer.h"

namespace nacre::chat {

class TokenReader {
 public:
  // The last token is kEnd.
  explicit TokenReader(std::vector<Token> tokens)
      : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& next() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }
  int line() const { return current().line; }
  Token Take() {
    const Token& token = current();
    if (token.kind != TokenKind::kEnd) ++position_;
    return token;
  }

  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view op) const {
    return current().is_operator(op);
  }
  bool at_name(std::string_view name) const { return current().is_name(name); }
  bool SkipOperator(std::string_view op) {
    const bool found = at_operator(op);
    if (found) Take();
    return found;
  }
  bool SkipName(std::string_view name) {
    const bool found = at_name(name);
    if (found) Take();
    return found;
  }

  absl::Status ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) return Wanted(Concat("'", op, "'"));
    return absl::OkStatus();
  }
  absl::Status ExpectName(std::string_view name) {
    if (!SkipName(name)) return Wanted(Concat("'", name, "'"));
    return absl::OkStatus();
  }
  absl::Status Expect(TokenKind kind) {
    if (!at(kind)) return Wanted(Describe(Token{.kind = kind}));
    Take();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> TakeName() {
    if (!at(TokenKind::kName)) return Wanted("a name");
    return Take().text;
  }

  absl::Status Wanted(std::string_view what) const {
    return Fail(line(),
                Concat("expected ", what, ", found ", Describe(current())));
  }
  static absl::Status Fail(int line, std::string_view message) {
    return absl::InvalidArgumentError(Concat("line ", line, ": ", message));
  }
  static absl::Status Refuse(int line, std::string_view what) {
    return absl::UnimplementedError(
        Concat("line ", line, ": ", what, " is not supported"));
  }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace nacre::chat

#endif  // CHAT_TOKEN_READER_H_
