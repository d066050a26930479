// Parses the expressions of a template into a Program.
//
// Used by one thread at a time.

#ifndef CHAT_EXPRESSION_PARSER_H_
#define CHAT_EXPRESSION_PARSER_H_

#include <initializer_list>
#include <string_view>

#include "absl/status/statusor.h"
#include "chat/ast.h"
#include "chat/program_builder.h"
#include "chat/token_reader.h"

namespace nacre::chat {

using ExprOr = absl::StatusOr<const Expr*>;

class ExpressionParser {
 public:
  // Both outlive the parser.
  ExpressionParser(TokenReader& tokens, ProgramBuilder& builder)
      : tokens_(tokens), builder_(builder) {}

  // An expression; `with_ternary`: "a if b else c" is one.
  ExprOr Parse(bool with_ternary = true);
  // An expression, or several with commas between them. It ends before the name
  // `end`, if that is not empty.
  ExprOr ParseTuple(bool with_ternary = true, std::string_view end = "",
                    bool in_parentheses = false);
  // "name(...)|name..." without the first "|", applied to `input`.
  ExprOr ParseFilters(const Expr* input, bool starts_inline);
  // `allow_attribute`: "space.name" is a target.
  absl::StatusOr<Target> ParseTarget(bool allow_attribute,
                                     std::string_view end);

 private:
  using Level = ExprOr (ExpressionParser::*)();

  ExprOr ParseTernary();
  ExprOr ParseOr();
  ExprOr ParseAnd();
  ExprOr ParseNot();
  ExprOr ParseCompare();
  ExprOr ParseSum();
  ExprOr ParseConcat();
  ExprOr ParseProduct();
  ExprOr ParsePower();
  ExprOr ParseUnary() { return ParseUnaryWith(true); }
  ExprOr ParseUnaryWith(bool with_filters);
  ExprOr ParsePrimary();
  ExprOr ParseName();
  ExprOr ParseList();
  ExprOr ParseDict();
  ExprOr ParsePostfix(const Expr* node);
  ExprOr ParseFilterExpr(const Expr* node);
  ExprOr ParseSubscript(const Expr* node);
  ExprOr ParseItem(const Expr* node, int line);
  ExprOr ParseCall(const Expr* node);
  ExprOr ParseTest(const Expr* node);
  absl::StatusOr<CallNode> ParseArguments();
  // left op right op ..., all of one strength.
  struct Choice {
    std::string_view token;
    Operator op;
  };
  ExprOr ParseChain(Level part, std::initializer_list<Choice> choices);

  TokenReader& tokens_;
  ProgramBuilder& builder_;
};

}  // namespace nacre::chat

#endif  // CHAT_EXPRESSION_PARSER_H_
