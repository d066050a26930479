#include "chat/program_builder.h"

#include <utility>

#include "chat/concat.h"

namespace nacre::chat {

Expr* ProgramBuilder::NewExpr(ExprKind kind, int line) {
  Expr& expr = program_.exprs.emplace_back();
  expr.kind = kind;
  expr.line = line;
  return &expr;
}

Statement* ProgramBuilder::NewStatement(StatementKind kind, int line) {
  Statement& statement = program_.statements.emplace_back();
  statement.kind = kind;
  statement.line = line;
  return &statement;
}

const Text* ProgramBuilder::NewText(std::string bytes) {
  Text& text = program_.texts.emplace_back();
  text.bytes = std::move(bytes);
  text.ascii = IsAscii(text.bytes);
  return &text;
}

absl::Status ProgramBuilder::Enter(int line) {
  if (depth_ >= limits_.depth) {
    return absl::ResourceExhaustedError(Concat(
        "line ", line, ": nested deeper than ", limits_.depth, " levels"));
  }
  ++depth_;
  return absl::OkStatus();
}

}  // namespace nacre::chat
