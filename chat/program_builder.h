// What the parsers of a template have made so far: its program, the names that
// it reads, and how deep they have nested.
//
// Used by one thread at a time.

#ifndef CHAT_PROGRAM_BUILDER_H_
#define CHAT_PROGRAM_BUILDER_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "chat/ast.h"
#include "chat/chat_template.h"

namespace nacre::chat {

class ProgramBuilder {
 public:
  // Both outlive it.
  ProgramBuilder(Program& program, const Limits& limits)
      : program_(program), limits_(limits) {}

  Expr* NewExpr(ExprKind kind, int line);
  Statement* NewStatement(StatementKind kind, int line);
  const Text* NewText(std::string bytes);

  // Counts how deep the caller has nested. RESOURCE_EXHAUSTED: too deep.
  absl::Status Enter(int line);
  void Leave() { --depth_; }

  // Names that expressions read so far.
  std::set<std::string>& names_read() { return names_read_; }

 private:
  Program& program_;
  const Limits& limits_;
  int depth_ = 0;
  std::set<std::string> names_read_;
};

}  // namespace nacre::chat

#endif  // CHAT_PROGRAM_BUILDER_H_
