// Computes the values of a program's expressions.
//
// Used by one thread at a time, for one render.

#ifndef CHAT_EXPRESSION_EVALUATOR_H_
#define CHAT_EXPRESSION_EVALUATOR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/ast.h"
#include "chat/loop.h"
#include "chat/render_context.h"
#include "chat/scope.h"
#include "chat/value.h"

namespace nacre::chat {

using ValueOr = absl::StatusOr<Value>;

// What calls run that are made of statements.
class StatementCalls {
 public:
  virtual ~StatementCalls() = default;
  virtual ValueOr CallMacro(const Function& function, Arguments arguments) = 0;
  // Of a recursive loop.
  virtual ValueOr CallLoop(Loop& loop, const Arguments& arguments) = 0;
};

class ExpressionEvaluator {
 public:
  // Both outlive it.
  ExpressionEvaluator(RenderContext& context, StatementCalls& calls)
      : context_(context), calls_(calls) {}

  ValueOr Evaluate(const Expr& expr, Scope* scope);
  // A call; `caller`: what the macro finds as such, null: nothing.
  ValueOr EvaluateCall(const Expr& expr, Scope* scope, const Value* caller);

  // What expressions of kCaptured are.
  void set_captured(const Value& captured) { captured_ = captured; }
  // The line at which the render is.
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

 private:
  ValueOr EvaluateKind(const Expr& expr, Scope* scope);
  ValueOr EvaluateName(const Expr& expr, Scope* scope);
  ValueOr EvaluateLogic(const Expr& expr, Scope* scope);
  ValueOr EvaluateTernary(const Expr& expr, Scope* scope);
  ValueOr EvaluateCompare(const Expr& expr, Scope* scope);
  ValueOr EvaluateConcat(const Expr& expr, Scope* scope);
  ValueOr EvaluateDict(const Expr& expr, Scope* scope);
  ValueOr EvaluateSlice(const Expr& expr, Scope* scope);
  ValueOr EvaluateFilterOrTest(const Expr& expr, Scope* scope);
  absl::StatusOr<std::vector<Value>> EvaluateAll(
      const std::vector<const Expr*>& exprs, Scope* scope);
  absl::StatusOr<Arguments> EvaluateArguments(const CallNode& call,
                                              Scope* scope);
  ValueOr Call(const Value& callee, Arguments arguments);
  ValueOr CallLoopMethod(const Function& method, const Arguments& arguments);

  RenderContext& context_;
  StatementCalls& calls_;
  int line_ = 0;
  Value captured_;
};

}  // namespace nacre::chat

#endif  // CHAT_EXPRESSION_EVALUATOR_H_
