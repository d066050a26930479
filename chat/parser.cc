#include "chat/parser.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "chat/concat.h"
#include "chat/expression_parser.h"
#include "chat/lexer.h"
#include "chat/program_builder.h"
#include "chat/token_reader.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits)
      : tokens_(std::move(tokens)),
        program_(std::make_shared<Program>()),
        builder_(*program_, limits),
        expressions_(tokens_, builder_) {}

  absl::StatusOr<std::shared_ptr<const Program>> Run() {
    NACRE_ASSIGN_OR_RETURN(program_->body, ParseBody({}));
    return std::shared_ptr<const Program>(program_);
  }

 private:
  using Names = std::vector<std::string_view>;

  // Up to a tag of one of the names `ends`, of which the name is next. Without
  // `ends`: up to the end of the template.
  absl::StatusOr<Body> ParseBody(const Names& ends);
  // ... after the end of the tag at hand. Takes the name of the last tag.
  absl::StatusOr<Body> ParseBlock(const Names& ends, std::string* end);
  absl::StatusOr<Body> ParseBlock(std::string_view end) {
    std::string found;
    return ParseBlock({end}, &found);
  }
  absl::StatusOr<const Statement*> ParsePrint();
  absl::Status ParseStatement(Body* body);
  absl::Status ParseFor(Statement* statement);
  absl::Status ParseIf(Statement* statement);
  absl::Status ParseSet(Statement* statement);
  absl::Status ParseWith(Statement* statement);
  absl::Status ParseMacro(Statement* statement);
  absl::Status ParseCallBlock(Statement* statement);
  absl::Status ParseFilterBlock(Statement* statement);
  absl::Status ParseGeneration(Statement* statement);
  absl::Status ParsePrintTag(Body* body);
  absl::Status ParseJump(Statement* statement, StatementKind kind);
  absl::Status ParseSignature(MacroNode* macro);
  absl::Status ParseMacroBody(MacroNode* macro, std::string_view end);

  TokenReader tokens_;
  std::shared_ptr<Program> program_;
  ProgramBuilder builder_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around the statement at hand, within its macro
};

absl::StatusOr<Body> Parser::ParseBody(const Names& ends) {
  NACRE_RETURN_IF_ERROR(builder_.Enter(tokens_.line()));
  const absl::Cleanup leave = [this] { builder_.Leave(); };
  Body body;
  while (!tokens_.at(TokenKind::kEnd)) {
    if (tokens_.at(TokenKind::kData)) {
      const Token token = tokens_.Take();
      Statement* data = builder_.NewStatement(StatementKind::kData, token.line);
      data->text = builder_.NewText(token.text);
      body.push_back(data);
    } else if (tokens_.at(TokenKind::kVariableBegin)) {
      NACRE_ASSIGN_OR_RETURN(const Statement* print, ParsePrint());
      body.push_back(print);
    } else {
      NACRE_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockBegin));
      const bool ended =
          std::any_of(ends.begin(), ends.end(),
                      [this](auto end) { return tokens_.at_name(end); });
      if (ended) return body;
      NACRE_RETURN_IF_ERROR(ParseStatement(&body));
      NACRE_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockEnd));
    }
  }
  if (!ends.empty()) {
    return tokens_.Wanted(Concat("'", ends.back(), "'"));
  }
  return body;
}

absl::StatusOr<Body> Parser::ParseBlock(const Names& ends, std::string* end) {
  tokens_.SkipOperator(":");
  NACRE_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockEnd));
  NACRE_ASSIGN_OR_RETURN(Body body, ParseBody(ends));
  *end = tokens_.Take().text;
  return body;
}

// "{{ ... }}".
absl::StatusOr<const Statement*> Parser::ParsePrint() {
  Statement* print =
      builder_.NewStatement(StatementKind::kPrint, tokens_.Take().line);
  NACRE_ASSIGN_OR_RETURN(print->expr, expressions_.ParseTuple());
  NACRE_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kVariableEnd));
  return print;
}

absl::Status Parser::ParseStatement(Body* body) {
  if (!tokens_.at(TokenKind::kName)) return tokens_.Wanted("the name of a tag");
  const Token tag = tokens_.Take();
  const std::string& name = tag.text;
  if (name == "print") return ParsePrintTag(body);
  Statement* statement = builder_.NewStatement(StatementKind::kIf, tag.line);
  body->push_back(statement);
  if (name == "if") return ParseIf(statement);
  if (name == "for") return ParseFor(statement);
  if (name == "set") return ParseSet(statement);
  if (name == "macro") return ParseMacro(statement);
  if (name == "call") return ParseCallBlock(statement);
  if (name == "filter") return ParseFilterBlock(statement);
  if (name == "with") return ParseWith(statement);
  if (name == "generation") return ParseGeneration(statement);
  if (name == "break") return ParseJump(statement, StatementKind::kBreak);
  if (name == "continue") {
    return ParseJump(statement, StatementKind::kContinue);
  }
  constexpr std::string_view kRefused[] = {"autoescape", "block",  "extends",
                                           "from",       "import", "include"};
  if (std::find(std::begin(kRefused), std::end(kRefused), name) !=
      std::end(kRefused)) {
    return TokenReader::Refuse(tag.line, Concat("the tag '", name, "'"));
  }
  return TokenReader::Fail(tag.line, Concat("unknown tag '", name, "'"));
}

absl::Status Parser::ParseFor(Statement* statement) {
  statement->kind = StatementKind::kFor;
  NACRE_ASSIGN_OR_RETURN(statement->target,
                         expressions_.ParseTarget(false, "in"));
  NACRE_RETURN_IF_ERROR(tokens_.ExpectName("in"));
  NACRE_ASSIGN_OR_RETURN(statement->expr,
                         expressions_.ParseTuple(false, "recursive"));
  if (tokens_.SkipName("if")) {
    NACRE_ASSIGN_OR_RETURN(statement->test, expressions_.Parse());
  }
  statement->recursive = tokens_.SkipName("recursive");
  ++loops_;
  std::string end;
  NACRE_ASSIGN_OR_RETURN(statement->body, ParseBlock({"endfor", "else"}, &end));
  --loops_;
  if (end == "endfor") return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(statement->otherwise, ParseBlock("endfor"));
  return absl::OkStatus();
}

absl::Status Parser::ParseIf(Statement* statement) {
  std::string end;
  do {
    NACRE_ASSIGN_OR_RETURN(const Expr* test, expressions_.ParseTuple(false));
    NACRE_ASSIGN_OR_RETURN(Body body,
                           ParseBlock({"elif", "else", "endif"}, &end));
    statement->branches.emplace_back(test, std::move(body));
  } while (end == "elif");
  if (end == "endif") return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(statement->otherwise, ParseBlock("endif"));
  return absl::OkStatus();
}

absl::Status Parser::ParseSet(Statement* statement) {
  NACRE_ASSIGN_OR_RETURN(statement->target, expressions_.ParseTarget(true, ""));
  if (tokens_.SkipOperator("=")) {
    statement->kind = StatementKind::kSet;
    NACRE_ASSIGN_OR_RETURN(statement->expr, expressions_.ParseTuple());
    return absl::OkStatus();
  }
  statement->kind = StatementKind::kSetBlock;
  if (tokens_.at_operator("|")) {
    const Expr* captured =
        builder_.NewExpr(ExprKind::kCaptured, statement->line);
    NACRE_ASSIGN_OR_RETURN(statement->expr,
                           expressions_.ParseFilters(captured, false));
  }
  NACRE_ASSIGN_OR_RETURN(statement->body, ParseBlock("endset"));
  return absl::OkStatus();
}

absl::Status Parser::ParseWith(Statement* statement) {
  statement->kind = StatementKind::kWith;
  while (!tokens_.at(TokenKind::kBlockEnd)) {
    if (!statement->assignments.empty()) {
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    }
    NACRE_ASSIGN_OR_RETURN(Target target, expressions_.ParseTarget(false, ""));
    NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
    NACRE_ASSIGN_OR_RETURN(const Expr* value, expressions_.Parse());
    statement->assignments.emplace_back(std::move(target), value);
  }
  NACRE_ASSIGN_OR_RETURN(statement->body, ParseBlock("endwith"));
  return absl::OkStatus();
}

absl::Status Parser::ParseSignature(MacroNode* macro) {
  NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.at_operator(")")) {
    if (!macro->parameters.empty()) {
      NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    }
    const int line = tokens_.line();
    NACRE_ASSIGN_OR_RETURN(std::string name, tokens_.TakeName());
    if (std::find(macro->parameters.begin(), macro->parameters.end(), name) !=
        macro->parameters.end()) {
      return TokenReader::Fail(
          line, Concat("the parameter '", name, "' is there twice"));
    }
    if (tokens_.SkipOperator("=")) {
      NACRE_ASSIGN_OR_RETURN(const Expr* value, expressions_.Parse());
      macro->defaults.push_back(value);
    } else if (!macro->defaults.empty()) {
      return TokenReader::Fail(
          line, "a parameter without a default follows one with a default");
    }
    macro->parameters.push_back(std::move(name));
  }
  return tokens_.ExpectOperator(")");
}

// The body, and which special names it reads.
absl::Status Parser::ParseMacroBody(MacroNode* macro, std::string_view end) {
  std::set<std::string>& names = builder_.names_read();
  std::set<std::string> outside = std::exchange(names, {});
  const int loops = std::exchange(loops_, 0);
  NACRE_ASSIGN_OR_RETURN(macro->body, ParseBlock(end));
  loops_ = loops;
  const auto reads = [&](const char* name) {
    return names.contains(name) &&
           std::find(macro->parameters.begin(), macro->parameters.end(),
                     name) == macro->parameters.end();
  };
  macro->uses_caller = reads("caller");
  macro->uses_varargs = reads("varargs");
  macro->uses_kwargs = reads("kwargs");
  names.merge(outside);
  return absl::OkStatus();
}

absl::Status Parser::ParseMacro(Statement* statement) {
  statement->kind = StatementKind::kMacro;
  NACRE_ASSIGN_OR_RETURN(statement->macro.name, tokens_.TakeName());
  NACRE_RETURN_IF_ERROR(ParseSignature(&statement->macro));
  return ParseMacroBody(&statement->macro, "endmacro");
}

absl::Status Parser::ParseCallBlock(Statement* statement) {
  statement->kind = StatementKind::kCall;
  statement->macro.name = "caller";
  if (tokens_.at_operator("(")) {
    NACRE_RETURN_IF_ERROR(ParseSignature(&statement->macro));
  }
  NACRE_ASSIGN_OR_RETURN(statement->expr, expressions_.Parse());
  if (statement->expr->kind != ExprKind::kCall) {
    return TokenReader::Fail(statement->line, "expected a call");
  }
  return ParseMacroBody(&statement->macro, "endcall");
}

absl::Status Parser::ParseFilterBlock(Statement* statement) {
  statement->kind = StatementKind::kFilter;
  const Expr* captured = builder_.NewExpr(ExprKind::kCaptured, statement->line);
  NACRE_ASSIGN_OR_RETURN(statement->expr,
                         expressions_.ParseFilters(captured, true));
  NACRE_ASSIGN_OR_RETURN(statement->body, ParseBlock("endfilter"));
  return absl::OkStatus();
}

// A function of its own in transformers: no jump leaves it.
absl::Status Parser::ParseGeneration(Statement* statement) {
  statement->kind = StatementKind::kGeneration;
  const int loops = std::exchange(loops_, 0);
  NACRE_ASSIGN_OR_RETURN(statement->body, ParseBlock("endgeneration"));
  loops_ = loops;
  return absl::OkStatus();
}

absl::Status Parser::ParsePrintTag(Body* body) {
  bool first = true;
  while (!tokens_.at(TokenKind::kBlockEnd)) {
    if (!first) NACRE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    first = false;
    Statement* print =
        builder_.NewStatement(StatementKind::kPrint, tokens_.line());
    NACRE_ASSIGN_OR_RETURN(print->expr, expressions_.Parse());
    body->push_back(print);
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseJump(Statement* statement, StatementKind kind) {
  statement->kind = kind;
  if (loops_ > 0) return absl::OkStatus();
  return TokenReader::Fail(statement->line,
                           kind == StatementKind::kBreak
                               ? "'break' outside of a loop"
                               : "'continue' outside of a loop");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> ParseProgram(
    std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    return absl::ResourceExhaustedError(Concat("the template has ",
                                               source.size(), " bytes, over ",
                                               limits.source_bytes));
  }
  if (const size_t bad = FindBadUtf8(source); bad != std::string_view::npos) {
    return absl::InvalidArgumentError(
        Concat("the template is no UTF-8 at byte ", bad));
  }
  NACRE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens), limits).Run();
}

}  // namespace nacre::chat
