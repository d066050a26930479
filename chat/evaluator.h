// Runs a program: its statements, and the macros and loops that its expressions
// call.
//
// Used by one thread at a time, for one render.

#ifndef CHAT_EVALUATOR_H_
#define CHAT_EVALUATOR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/ast.h"
#include "chat/expression_evaluator.h"
#include "chat/loop.h"
#include "chat/render_context.h"
#include "chat/scope.h"
#include "chat/value.h"

namespace nacre::chat {

class Evaluator final : private StatementCalls {
 public:
  // `globals` are the variables of the render. All outlive the evaluator.
  Evaluator(RenderContext& context, Scope* globals)
      : context_(context), globals_(globals), expressions_(context, *this) {}

  // Appends what the program prints.
  absl::Status Run(const Program& program, TextBuilder* out);
  // The line at which it is.
  int line() const { return expressions_.line(); }

 private:
  // What a statement asks of the loop around it.
  enum class Flow { kNext, kBreak, kContinue };
  using FlowOr = absl::StatusOr<Flow>;

  FlowOr RunBody(const Body& body, Scope* scope, TextBuilder* out);
  FlowOr RunStatement(const Statement& statement, Scope* scope,
                      TextBuilder* out);
  FlowOr RunIf(const Statement& statement, Scope* scope, TextBuilder* out);
  FlowOr RunFor(const Statement& statement, Scope* scope, TextBuilder* out);
  absl::Status RunLoop(const Statement& statement, Scope* scope,
                       const Value& iterable, int depth0, TextBuilder* out);
  FlowOr RunSetBlock(const Statement& statement, Scope* scope);
  FlowOr RunFilterBlock(const Statement& statement, Scope* scope,
                        TextBuilder* out);
  FlowOr RunWith(const Statement& statement, Scope* scope, TextBuilder* out);
  FlowOr RunCallBlock(const Statement& statement, Scope* scope,
                      TextBuilder* out);
  absl::Status RunPrint(const Statement& statement, Scope* scope,
                        TextBuilder* out);
  absl::Status AppendBlock(const Value& value, TextBuilder* out);
  absl::Status CheckTarget(const Target& target, Scope* scope) const;
  absl::Status Assign(const Target& target, const Value& value, Scope* scope);
  Value NewMacro(const MacroNode& macro, Scope* scope);
  Scope* NewScope(Scope* parent);

  ValueOr Evaluate(const Expr& expr, Scope* scope) {
    return expressions_.Evaluate(expr, scope);
  }
  ValueOr CallMacro(const Function& function, Arguments arguments) override;
  ValueOr CallLoop(Loop& loop, const Arguments& arguments) override;
  absl::Status BindParameters(const Function& function, Arguments* arguments,
                              Scope* scope);

  RenderContext& context_;
  Scope* const globals_;
  ExpressionEvaluator expressions_;
  int calls_ = 0;  // nested macros and recursive loops
};

}  // namespace nacre::chat

#endif  // CHAT_EVALUATOR_H_
