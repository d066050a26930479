// Runs a program.
//
// Used by one thread at a time, for one render.

#ifndef CHAT_EVALUATOR_H_
#define CHAT_EVALUATOR_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/arguments.h"
#include "chat/ast.h"
#include "chat/loop.h"
#include "chat/render_context.h"
#include "chat/value.h"

namespace nacre::chat {

// Variables of one block; it sees those of the blocks around it.
struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, const Value& value);
};

class Evaluator {
 public:
  // `globals` are the variables of the render. All outlive the evaluator.
  Evaluator(RenderContext& context, Scope* globals)
      : context_(context), globals_(globals) {}

  // Appends what the program prints.
  absl::Status Run(const Program& program, TextBuilder* out);
  // The line at which it is.
  int line() const { return line_; }

 private:
  // What a statement asks of the loop around it.
  enum class Flow { kNext, kBreak, kContinue };
  using FlowOr = absl::StatusOr<Flow>;
  using ValueOr = absl::StatusOr<Value>;

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

  ValueOr Evaluate(const Expr& expr, Scope* scope);
  ValueOr EvaluateKind(const Expr& expr, Scope* scope);
  ValueOr EvaluateName(const Expr& expr, Scope* scope);
  ValueOr EvaluateLogic(const Expr& expr, Scope* scope);
  ValueOr EvaluateTernary(const Expr& expr, Scope* scope);
  ValueOr EvaluateCompare(const Expr& expr, Scope* scope);
  ValueOr EvaluateConcat(const Expr& expr, Scope* scope);
  ValueOr EvaluateDict(const Expr& expr, Scope* scope);
  ValueOr EvaluateSlice(const Expr& expr, Scope* scope);
  ValueOr EvaluateCall(const Expr& expr, Scope* scope, const Value* caller);
  ValueOr EvaluateFilterOrTest(const Expr& expr, Scope* scope);
  absl::StatusOr<std::vector<Value>> EvaluateAll(
      const std::vector<const Expr*>& exprs, Scope* scope);
  absl::StatusOr<Arguments> EvaluateArguments(const CallNode& call,
                                              Scope* scope);

  ValueOr Call(const Value& callee, Arguments arguments);
  ValueOr CallMacro(const Function& function, Arguments arguments);
  absl::Status BindParameters(const Function& function, Arguments* arguments,
                              Scope* scope);
  ValueOr CallLoop(Loop& loop, const Arguments& arguments);
  ValueOr CallLoopMethod(const Function& method, const Arguments& arguments);

  RenderContext& context_;
  Scope* const globals_;
  int line_ = 0;
  int calls_ = 0;  // nested macros and recursive loops
  Value captured_;
};

}  // namespace nacre::chat

#endif  // CHAT_EVALUATOR_H_
