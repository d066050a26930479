#include "chat/expression_parser.h"

#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "chat/concat.h"
#include "chat/filters.h"
#include "chat/predicates.h"
#include "chat/supported.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

// The comparison at hand, which it takes.
std::optional<Operator> TakeComparison(TokenReader& tokens) {
  constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
      {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
      {">", Operator::kGreater}, {">=", Operator::kGreaterEqual},
  };
  for (const auto& [token, op] : kComparisons) {
    if (tokens.SkipOperator(token)) return op;
  }
  if (tokens.SkipName("in")) return Operator::kIn;
  if (tokens.at_name("not") && tokens.next().is_name("in")) {
    tokens.Take();
    tokens.Take();
    return Operator::kNotIn;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> ParseDottedName(TokenReader& tokens) {
  NACRE_ASSIGN_OR_RETURN(std::string name, tokens.TakeName());
  while (tokens.SkipOperator(".")) {
    NACRE_ASSIGN_OR_RETURN(const std::string part, tokens.TakeName());
    name += Concat(".", part);
  }
  return name;
}

}  // namespace

ExprOr ExpressionParser::Parse(bool with_ternary) {
  NACRE_RETURN_IF_ERROR(builder_.Enter(tokens_.line()));
  const absl::Cleanup leave = [this] { builder_.Leave(); };
  return with_ternary ? ParseTernary() : ParseOr();
}

ExprOr ExpressionParser::ParseTernary() {
  int line = tokens_.line();
  NACRE_ASSIGN_OR_RETURN(const Expr* value, ParseOr());
  while (tokens_.SkipName("if")) {
    NACRE_ASSIGN_OR_RETURN(const Expr* test, ParseOr());
    const Expr* otherwise = nullptr;
    if (tokens_.SkipName("else")) {
      NACRE_ASSIGN_OR_RETURN(otherwise, Parse());
    }
    Expr* ternary = builder_.NewExpr(ExprKind::kTernary, line);
    ternary->children = {test, value, otherwise};
    value = ternary;
    line = tokens_.line();
  }
  return value;
}

ExprOr ExpressionParser::ParseOr() {
  NACRE_ASSIGN_OR_RETURN(const Expr* left, ParseAnd());
  while (tokens_.at_name("or")) {
    Expr* either = builder_.NewExpr(ExprKind::kOr, tokens_.Take().line);
    NACRE_ASSIGN_OR_RETURN(const Expr* right, ParseAnd());
    either->children = {left, right};
    left = either;
  }
  return left;
}

ExprOr ExpressionParser::ParseAnd() {
  NACRE_ASSIGN_OR_RETURN(const Expr* left, ParseNot());
  while (tokens_.at_name("and")) {
    Expr* both = builder_.NewExpr(ExprKind::kAnd, tokens_.Take().line);
    NACRE_ASSIGN_OR_RETURN(const Expr* right, ParseNot());
    both->children = {left, right};
    left = both;
  }
  return left;
}

ExprOr ExpressionParser::ParseNot() {
  if (!tokens_.at_name("not")) return ParseCompare();
  NACRE_RETURN_IF_ERROR(builder_.Enter(tokens_.line()));
  const absl::Cleanup leave = [this] { builder_.Leave(); };
  Expr* negation = builder_.NewExpr(ExprKind::kNot, tokens_.Take().line);
  NACRE_ASSIGN_OR_RETURN(const Expr* operand, ParseNot());
  negation->children = {operand};
  return negation;
}

ExprOr ExpressionParser::ParseCompare() {
  const int line = tokens_.line();
  NACRE_ASSIGN_OR_RETURN(const Expr* first, ParseSum());
  Expr* compare = nullptr;
  while (const std::optional<Operator> op = TakeComparison(tokens_)) {
    if (compare == nullptr) {
      compare = builder_.NewExpr(ExprKind::kCompare, line);
      compare->children = {first};
    }
    NACRE_ASSIGN_OR_RETURN(const Expr* operand, ParseSum());
    compare->operators.push_back(*op);
    compare->children.push_back(operand);
  }
  return compare == nullptr ? first : compare;
}

ExprOr ExpressionParser::ParseChain(Level part,
                                    std::initializer_list<Choice> choices) {
  NACRE_ASSIGN_OR_RETURN(const Expr* left, (this->*part)());
  while (true) {
    Expr* binary = nullptr;
    for (const Choice& choice : choices) {
      if (!tokens_.at_operator(choice.token)) continue;
      binary = builder_.NewExpr(ExprKind::kBinary, tokens_.Take().line);
      binary->operators = {choice.op};
      break;
    }
    if (binary == nullptr) return left;
    NACRE_ASSIGN_OR_RETURN(const Expr* right, (this->*part)());
    binary->children = {left, right};
    left = binary;
  }
}

ExprOr ExpressionParser::ParseSum() {
  return ParseChain(&ExpressionParser::ParseConcat,
                    {{"+", Operator::kAdd}, {"-", Operator::kSubtract}});
}

ExprOr ExpressionParser::ParseConcat() {
  const int line = tokens_.line();
  NACRE_ASSIGN_OR_RETURN(const Expr* first, ParseProduct());
  if (!tokens_.at_operator("~")) return first;
  Expr* concat = builder_.NewExpr(ExprKind::kConcat, line);
  concat->children = {first};
  while (tokens_.SkipOperator("~")) {
    NACRE_ASSIGN_OR_RETURN(const Expr* part, ParseProduct());
    concat->children.push_back(part);
  }
  return concat;
}

ExprOr ExpressionParser::ParseProduct() {
  return ParseChain(&ExpressionParser::ParsePower,
                    {{"*", Operator::kMultiply},
                     {"/", Operator::kDivide},
                     {"//", Operator::kFloorDivide},
                     {"%", Operator::kModulo}});
}

ExprOr ExpressionParser::ParsePower() {
  return ParseChain(&ExpressionParser::ParseUnary, {{"**", Operator::kPower}});
}

ExprOr ExpressionParser::ParseUnaryWith(bool with_filters) {
  NACRE_RETURN_IF_ERROR(builder_.Enter(tokens_.line()));
  const absl::Cleanup leave = [this] { builder_.Leave(); };
  const Expr* node = nullptr;
  if (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    Expr* unary = builder_.NewExpr(ExprKind::kUnary, tokens_.line());
    unary->operators = {tokens_.Take().text == "-" ? Operator::kSubtract
                                                   : Operator::kAdd};
    NACRE_ASSIGN_OR_RETURN(const Expr* operand, ParseUnaryWith(false));
    unary->children = {operand};
    node = unary;
  } else {
    NACRE_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  NACRE_ASSIGN_OR_RETURN(node, ParsePostfix(node));
  return with_filters ? ParseFilterExpr(node) : ExprOr(node);
}

ExprOr ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      std::string text;
      while (tokens_.at(TokenKind::kString)) text += tokens_.Take().text;
      Expr* constant = builder_.NewExpr(ExprKind::kConst, line);
      constant->constant = Value(builder_.NewText(std::move(text)));
      return constant;
    }
    case TokenKind::kInteger: {
      Expr* constant = builder_.NewExpr(ExprKind::kConst, line);
      constant->constant = Value(tokens_.Take().integer);
      return constant;
    }
    case TokenKind::kFloat: {
      Expr* constant = builder_.NewExpr(ExprKind::kConst, line);
      constant->constant = Value(tokens_.Take().real);
      return constant;
    }
    default:
      break;
  }
  if (tokens_.SkipOperator("(")) {
    NACRE_ASSIGN_OR_RETURN(const Expr* inner, ParseTuple(true, "", true));
    NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return inner;
  }
  if (tokens_.at_operator("[")) return ParseList();
  if (tokens_.at_operator("{")) return ParseDict();
  return tokens_.Wanted("an expression");
}

ExprOr ExpressionParser::ParseName() {
  const Token token = tokens_.Take();
  const std::string& name = token.text;
  Expr* expr = builder_.NewExpr(ExprKind::kConst, token.line);
  if (name == "true" || name == "True") {
    expr->constant = Value(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value(false);
  } else if (name == "none" || name == "None") {
    expr->constant = Value();
  } else {
    if (IsRefusedName(name)) {
      return TokenReader::Refuse(token.line, Concat("'", name, "'"));
    }
    expr->kind = ExprKind::kName;
    expr->name = name;
    builder_.names_read().insert(name);
  }
  return expr;
}

ExprOr ExpressionParser::ParseList() {
  Expr* list = builder_.NewExpr(ExprKind::kList, tokens_.Take().line);
  while (!tokens_.at_operator("]")) {
    if (!list->children.empty()) {
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.at_operator("]")) break;
    }
    NACRE_ASSIGN_OR_RETURN(const Expr* item, Parse());
    list->children.push_back(item);
  }
  NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return list;
}

ExprOr ExpressionParser::ParseDict() {
  Expr* dict = builder_.NewExpr(ExprKind::kDict, tokens_.Take().line);
  while (!tokens_.at_operator("}")) {
    if (!dict->children.empty()) {
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.at_operator("}")) break;
    }
    NACRE_ASSIGN_OR_RETURN(const Expr* key, Parse());
    NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    NACRE_ASSIGN_OR_RETURN(const Expr* value, Parse());
    dict->children.push_back(key);
    dict->children.push_back(value);
  }
  NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return dict;
}

ExprOr ExpressionParser::ParseTuple(bool with_ternary, std::string_view end,
                                    bool in_parentheses) {
  Expr* tuple = builder_.NewExpr(ExprKind::kTuple, tokens_.line());
  bool is_tuple = false;
  while (true) {
    if (!tuple->children.empty()) {
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    }
    if (tokens_.at(TokenKind::kVariableEnd) ||
        tokens_.at(TokenKind::kBlockEnd) || tokens_.at_operator(")") ||
        (!end.empty() && tokens_.at_name(end))) {
      break;
    }
    NACRE_ASSIGN_OR_RETURN(const Expr* item, Parse(with_ternary));
    tuple->children.push_back(item);
    if (!tokens_.at_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->children.empty()) return tuple->children[0];
  if (!in_parentheses) return tokens_.Wanted("an expression");
  return tuple;
}

ExprOr ExpressionParser::ParsePostfix(const Expr* node) {
  while (true) {
    if (tokens_.at_operator(".") || tokens_.at_operator("[")) {
      NACRE_ASSIGN_OR_RETURN(node, ParseSubscript(node));
    } else if (tokens_.at_operator("(")) {
      NACRE_ASSIGN_OR_RETURN(node, ParseCall(node));
    } else {
      return node;
    }
  }
}

ExprOr ExpressionParser::ParseFilterExpr(const Expr* node) {
  while (true) {
    if (tokens_.at_operator("|")) {
      NACRE_ASSIGN_OR_RETURN(node, ParseFilters(node, false));
    } else if (tokens_.at_name("is")) {
      NACRE_ASSIGN_OR_RETURN(node, ParseTest(node));
    } else if (tokens_.at_operator("(")) {
      NACRE_ASSIGN_OR_RETURN(node, ParseCall(node));
    } else {
      return node;
    }
  }
}

ExprOr ExpressionParser::ParseSubscript(const Expr* node) {
  const Token token = tokens_.Take();
  if (token.text == "[") return ParseItem(node, token.line);
  if (tokens_.at(TokenKind::kName)) {
    const std::string name = tokens_.Take().text;
    if (tokens_.at_operator("(") && IsRefusedMethod(name)) {
      return TokenReader::Refuse(token.line, Concat("the method '", name, "'"));
    }
    Expr* attribute = builder_.NewExpr(ExprKind::kAttribute, token.line);
    attribute->name = name;
    attribute->children = {node};
    return attribute;
  }
  if (!tokens_.at(TokenKind::kInteger)) {
    return tokens_.Wanted("a name or a number");
  }
  Expr* index = builder_.NewExpr(ExprKind::kConst, token.line);
  index->constant = Value(tokens_.Take().integer);
  Expr* item = builder_.NewExpr(ExprKind::kItem, token.line);
  item->children = {node, index};
  return item;
}

// After "[".
ExprOr ExpressionParser::ParseItem(const Expr* node, int line) {
  if (tokens_.at_operator("]")) {
    return TokenReader::Refuse(line, "an item without an index");
  }
  std::vector<const Expr*> parts = {node};
  bool is_slice = false;
  for (int part = 0; part < 3; ++part) {
    const Expr* bound = nullptr;
    if (!tokens_.at_operator(":") && !tokens_.at_operator("]")) {
      NACRE_ASSIGN_OR_RETURN(bound, Parse());
    }
    parts.push_back(bound);
    if (part == 2 || !tokens_.SkipOperator(":")) break;
    is_slice = true;
  }
  if (tokens_.at_operator(",")) {
    return TokenReader::Refuse(line, "',' between brackets of an item");
  }
  NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  Expr* item =
      builder_.NewExpr(is_slice ? ExprKind::kSlice : ExprKind::kItem, line);
  if (is_slice) parts.resize(4, nullptr);
  item->children = std::move(parts);
  return item;
}

ExprOr ExpressionParser::ParseCall(const Expr* node) {
  Expr* call = builder_.NewExpr(ExprKind::kCall, tokens_.line());
  NACRE_ASSIGN_OR_RETURN(call->call, ParseArguments());
  call->children = {node};
  return call;
}

absl::StatusOr<CallNode> ExpressionParser::ParseArguments() {
  const int line = tokens_.line();
  const auto bad = [line] {
    return TokenReader::Fail(line, "the arguments are in a wrong order");
  };
  CallNode call;
  NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  bool first = true;
  while (!tokens_.at_operator(")")) {
    if (!first) {
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.at_operator(")")) break;
    }
    first = false;
    if (tokens_.SkipOperator("*")) {
      if (call.star != nullptr || call.star_star != nullptr) return bad();
      NACRE_ASSIGN_OR_RETURN(call.star, Parse());
    } else if (tokens_.SkipOperator("**")) {
      if (call.star_star != nullptr) return bad();
      NACRE_ASSIGN_OR_RETURN(call.star_star, Parse());
    } else if (tokens_.at(TokenKind::kName) &&
               tokens_.next().is_operator("=")) {
      if (call.star_star != nullptr) return bad();
      std::string name = tokens_.Take().text;
      tokens_.Take();
      for (const auto& [known, unused] : call.named) {
        if (known == name) {
          return TokenReader::Fail(
              line, Concat("the argument '", name, "' is there twice"));
        }
      }
      NACRE_ASSIGN_OR_RETURN(const Expr* value, Parse());
      call.named.emplace_back(std::move(name), value);
    } else {
      if (call.star != nullptr || call.star_star != nullptr ||
          !call.named.empty()) {
        return bad();
      }
      NACRE_ASSIGN_OR_RETURN(const Expr* value, Parse());
      call.positional.push_back(value);
    }
  }
  NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return call;
}

ExprOr ExpressionParser::ParseFilters(const Expr* input, bool starts_inline) {
  while (starts_inline || tokens_.SkipOperator("|")) {
    starts_inline = false;
    Expr* filter = builder_.NewExpr(ExprKind::kFilter, tokens_.line());
    NACRE_ASSIGN_OR_RETURN(filter->name, ParseDottedName(tokens_));
    if (!IsFilter(filter->name)) {
      return TokenReader::Refuse(filter->line,
                                 Concat("the filter '", filter->name, "'"));
    }
    if (tokens_.at_operator("(")) {
      NACRE_ASSIGN_OR_RETURN(filter->call, ParseArguments());
    }
    filter->children = {input};
    input = filter;
  }
  return input;
}

// After "is".
ExprOr ExpressionParser::ParseTest(const Expr* node) {
  tokens_.Take();
  const bool negated = tokens_.SkipName("not");
  Expr* test = builder_.NewExpr(ExprKind::kTest, tokens_.line());
  NACRE_ASSIGN_OR_RETURN(test->name, ParseDottedName(tokens_));
  if (!IsTest(test->name)) {
    return TokenReader::Refuse(test->line,
                               Concat("the test '", test->name, "'"));
  }
  const Token& next = tokens_.current();
  if (next.is_operator("(")) {
    NACRE_ASSIGN_OR_RETURN(test->call, ParseArguments());
  } else if ((next.kind == TokenKind::kName && next.text != "else" &&
              next.text != "or" && next.text != "and") ||
             next.kind == TokenKind::kString ||
             next.kind == TokenKind::kInteger ||
             next.kind == TokenKind::kFloat || next.is_operator("[") ||
             next.is_operator("{")) {
    if (next.is_name("is")) {
      return TokenReader::Fail(next.line, "tests cannot be chained with 'is'");
    }
    NACRE_ASSIGN_OR_RETURN(const Expr* argument, ParsePrimary());
    NACRE_ASSIGN_OR_RETURN(argument, ParsePostfix(argument));
    test->call.positional = {argument};
  }
  test->children = {node};
  if (!negated) return test;
  Expr* negation = builder_.NewExpr(ExprKind::kNot, test->line);
  negation->children = {test};
  return negation;
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(bool allow_attribute,
                                                     std::string_view end) {
  NACRE_RETURN_IF_ERROR(builder_.Enter(tokens_.line()));
  const absl::Cleanup leave = [this] { builder_.Leave(); };
  Target target;
  target.line = tokens_.line();
  while (true) {
    Target item;
    item.line = tokens_.line();
    if (tokens_.SkipOperator("(")) {
      NACRE_ASSIGN_OR_RETURN(item, ParseTarget(allow_attribute, ""));
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    } else {
      NACRE_ASSIGN_OR_RETURN(item.name, tokens_.TakeName());
      if (IsConstantName(item.name)) {
        return TokenReader::Fail(
            item.line, Concat("'", item.name, "' cannot be assigned"));
      }
      if (allow_attribute && tokens_.SkipOperator(".")) {
        NACRE_ASSIGN_OR_RETURN(item.attribute, tokens_.TakeName());
        builder_.names_read().insert(item.name);
      }
    }
    target.items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
    target.is_tuple = true;
    if (tokens_.at(TokenKind::kBlockEnd) || tokens_.at_operator(")") ||
        (!end.empty() && tokens_.at_name(end))) {
      break;
    }
  }
  if (target.is_tuple) return target;
  return Target(std::move(target.items[0]));
}

}  // namespace nacre::chat
