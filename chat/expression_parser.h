// Parses the expressions of a template into a Program.
//
// Used by one thread at a time.

#ifndef CHAT_EXPRESSION_PARSER_H_
#define CHAT_EXPRESSION_PARSER_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/ast.h"
#include "chat/chat_template.h"
#include "chat/token_reader.h"

namespace nacre::chat {

using ExprOr = absl::StatusOr<const Expr*>;

class ExpressionParser {
 public:
  // All outlive the parser.
  ExpressionParser(TokenReader& tokens, Program& program, const Limits& limits)
      : tokens_(tokens), program_(program), limits_(limits) {}

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

  // Counts how deep the caller has nested. RESOURCE_EXHAUSTED: too deep.
  absl::Status Enter();
  void Leave() { --depth_; }

  // Names that expressions read so far.
  std::set<std::string>& names_read() { return names_read_; }
  Expr* NewExpr(ExprKind kind, int line);
  const Text* NewText(std::string bytes);

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
  absl::StatusOr<std::string> ParseDottedName();
  // left op right op ..., all of one strength.
  struct Choice {
    std::string_view token;
    Operator op;
  };
  ExprOr ParseChain(Level part, std::initializer_list<Choice> choices);

  TokenReader& tokens_;
  Program& program_;
  const Limits& limits_;
  int depth_ = 0;
  std::set<std::string> names_read_;
};

}  // namespace nacre::chat

#endif  // CHAT_EXPRESSION_PARSER_H_
