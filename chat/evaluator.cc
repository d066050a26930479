#include "chat/evaluator.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/loop_items.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "common/quoted.h"
#include "common/status_macros.h"

namespace nacre::chat {

namespace {

absl::Status TooManyCalls(int limit) {
  return absl::ResourceExhaustedError(Concat(
      "macros or loops call one another deeper than ", limit, " levels"));
}

}  // namespace

Scope* Evaluator::NewScope(Scope* parent) {
  Scope* scope = context_.New<Scope>();
  scope->parent = parent;
  return scope;
}

absl::Status Evaluator::Run(const Program& program, TextBuilder* out) {
  NACRE_RETURN_IF_ERROR(
      RunBody(program.body, NewScope(globals_), out).status());
  if (out->overflowed()) {
    return absl::ResourceExhaustedError(Concat("the prompt is longer than ",
                                               context_.limits().output_bytes,
                                               " bytes"));
  }
  return absl::OkStatus();
}

Evaluator::FlowOr Evaluator::RunBody(const Body& body, Scope* scope,
                                     TextBuilder* out) {
  const Nested nested(context_);
  NACRE_RETURN_IF_ERROR(nested.status());
  for (const Statement* statement : body) {
    NACRE_RETURN_IF_ERROR(context_.Charge(1));
    NACRE_ASSIGN_OR_RETURN(const Flow flow,
                           RunStatement(*statement, scope, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::FlowOr Evaluator::RunStatement(const Statement& statement,
                                          Scope* scope, TextBuilder* out) {
  expressions_.set_line(statement.line);
  switch (statement.kind) {
    case StatementKind::kData:
      out->Append(*statement.text);
      return Flow::kNext;
    case StatementKind::kPrint:
      NACRE_RETURN_IF_ERROR(RunPrint(statement, scope, out));
      return Flow::kNext;
    case StatementKind::kIf:
      return RunIf(statement, scope, out);
    case StatementKind::kFor:
      return RunFor(statement, scope, out);
    case StatementKind::kSet: {
      NACRE_RETURN_IF_ERROR(CheckTarget(statement.target, scope));
      NACRE_ASSIGN_OR_RETURN(const Value value,
                             Evaluate(*statement.expr, scope));
      NACRE_RETURN_IF_ERROR(Assign(statement.target, value, scope));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
      return RunSetBlock(statement, scope);
    case StatementKind::kMacro:
      scope->Set(statement.macro.name, NewMacro(statement.macro, scope));
      return Flow::kNext;
    case StatementKind::kCall:
      return RunCallBlock(statement, scope, out);
    case StatementKind::kFilter:
      return RunFilterBlock(statement, scope, out);
    case StatementKind::kWith:
      return RunWith(statement, scope, out);
    case StatementKind::kGeneration:
      return RunBody(statement.body, NewScope(scope), out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status Evaluator::RunPrint(const Statement& statement, Scope* scope,
                                 TextBuilder* out) {
  NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expr, scope));
  return AppendStr(context_, value, out);
}

Evaluator::FlowOr Evaluator::RunIf(const Statement& statement, Scope* scope,
                                   TextBuilder* out) {
  for (const auto& [test, body] : statement.branches) {
    NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*test, scope));
    if (Truth(value)) return RunBody(body, scope, out);
  }
  return RunBody(statement.otherwise, scope, out);
}

Evaluator::FlowOr Evaluator::RunFor(const Statement& statement, Scope* scope,
                                    TextBuilder* out) {
  NACRE_ASSIGN_OR_RETURN(const Value iterable,
                         Evaluate(*statement.expr, scope));
  NACRE_RETURN_IF_ERROR(RunLoop(statement, scope, iterable, 0, out));
  return Flow::kNext;
}

absl::Status Evaluator::RunLoop(const Statement& statement, Scope* scope,
                                const Value& iterable, int depth0,
                                TextBuilder* out) {
  Loop* loop = context_.New<Loop>();
  loop->statement = &statement;
  loop->scope = scope;
  loop->depth0 = depth0;
  NACRE_ASSIGN_OR_RETURN(loop->items, Items(context_, iterable));
  if (statement.test != nullptr) {
    loop->passes = [this, &statement,
                    scope](const Value& item) -> absl::StatusOr<bool> {
      Scope* inner = NewScope(scope);
      NACRE_RETURN_IF_ERROR(Assign(statement.target, item, inner));
      NACRE_ASSIGN_OR_RETURN(const Value passes,
                             Evaluate(*statement.test, inner));
      return Truth(passes);
    };
  }
  bool completed = false;
  while (true) {
    NACRE_RETURN_IF_ERROR(context_.Charge(1));
    NACRE_ASSIGN_OR_RETURN(const bool more, LookAhead(*loop, 1));
    if (!more) break;
    loop->has_previous = loop->index0 >= 0;
    loop->previous = loop->current;
    loop->current = loop->ahead.front();
    loop->ahead.pop_front();
    ++loop->index0;
    Scope* inner = NewScope(scope);
    inner->Set("loop", Value(loop));
    NACRE_RETURN_IF_ERROR(Assign(statement.target, loop->current, inner));
    NACRE_ASSIGN_OR_RETURN(const Flow flow,
                           RunBody(statement.body, inner, out));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  // jinja2 runs `else` too if a jump left every round.
  if (completed || statement.otherwise.empty()) {
    return absl::OkStatus();
  }
  return RunBody(statement.otherwise, NewScope(scope), out).status();
}

Evaluator::FlowOr Evaluator::RunSetBlock(const Statement& statement,
                                         Scope* scope) {
  TextBuilder text = context_.NewText();
  NACRE_ASSIGN_OR_RETURN(const Flow flow,
                         RunBody(statement.body, NewScope(scope), &text));
  if (flow != Flow::kNext) return flow;
  NACRE_ASSIGN_OR_RETURN(Value value, context_.Finish(std::move(text)));
  if (statement.expr != nullptr) {
    expressions_.set_captured(value);
    NACRE_ASSIGN_OR_RETURN(value, Evaluate(*statement.expr, scope));
  }
  NACRE_RETURN_IF_ERROR(Assign(statement.target, value, scope));
  return Flow::kNext;
}

// What a filter or call block gives must be a text.
absl::Status Evaluator::AppendBlock(const Value& value, TextBuilder* out) {
  if (!value.is(Kind::kString)) {
    return TypeFault("expected str instance, ", TypeName(value), " found");
  }
  return AppendStr(context_, value, out);
}

Evaluator::FlowOr Evaluator::RunFilterBlock(const Statement& statement,
                                            Scope* scope, TextBuilder* out) {
  TextBuilder text = context_.NewText();
  NACRE_ASSIGN_OR_RETURN(const Flow flow,
                         RunBody(statement.body, NewScope(scope), &text));
  if (flow != Flow::kNext) return flow;
  NACRE_ASSIGN_OR_RETURN(const Value captured,
                         context_.Finish(std::move(text)));
  expressions_.set_captured(captured);
  NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expr, scope));
  NACRE_RETURN_IF_ERROR(AppendBlock(value, out));
  return Flow::kNext;
}

Evaluator::FlowOr Evaluator::RunWith(const Statement& statement, Scope* scope,
                                     TextBuilder* out) {
  Scope* inner = NewScope(scope);
  for (const auto& [target, expr] : statement.assignments) {
    NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr, scope));
    NACRE_RETURN_IF_ERROR(Assign(target, value, inner));
  }
  return RunBody(statement.body, inner, out);
}

Value Evaluator::NewMacro(const MacroNode& macro, Scope* scope) {
  Function* function = context_.New<Function>();
  function->what = Function::What::kMacro;
  function->name = macro.name;
  function->macro = &macro;
  function->closure = scope;
  return Value(static_cast<const Function*>(function));
}

Evaluator::FlowOr Evaluator::RunCallBlock(const Statement& statement,
                                          Scope* scope, TextBuilder* out) {
  const Value caller = NewMacro(statement.macro, scope);
  NACRE_ASSIGN_OR_RETURN(
      const Value value,
      expressions_.EvaluateCall(*statement.expr, scope, &caller));
  NACRE_RETURN_IF_ERROR(AppendBlock(value, out));
  return Flow::kNext;
}

// Attributes are of namespaces: jinja2 looks before it computes the value.
absl::Status Evaluator::CheckTarget(const Target& target, Scope* scope) const {
  for (const Target& item : target.items) {
    NACRE_RETURN_IF_ERROR(CheckTarget(item, scope));
  }
  if (target.attribute.empty()) return absl::OkStatus();
  const Value* space = scope->Find(target.name);
  if (space != nullptr && space->is(Kind::kNamespace)) return absl::OkStatus();
  return TypeFault("cannot assign attribute on non-namespace object '",
                   target.name, "'");
}

absl::Status Evaluator::Assign(const Target& target, const Value& value,
                               Scope* scope) {
  if (target.is_tuple) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                           Items(context_, value));
    if (items.size() != target.items.size()) {
      return ValueFault(items.size() < target.items.size()
                            ? "not enough values to unpack"
                            : "too many values to unpack",
                        " (expected ", target.items.size(), ")");
    }
    for (size_t i = 0; i < items.size(); ++i) {
      NACRE_RETURN_IF_ERROR(Assign(target.items[i], items[i], scope));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    scope->Set(target.name, value);
    return absl::OkStatus();
  }
  NACRE_RETURN_IF_ERROR(CheckTarget(target, scope));
  const Value* space = scope->Find(target.name);
  if (target.attribute.starts_with('_')) {
    return SecurityFault("a namespace cannot have the attribute ",
                         Quoted(target.attribute));
  }
  NACRE_ASSIGN_OR_RETURN(const Value name, context_.String(target.attribute));
  space->space().attributes.Set(DictKeyOfName(target.attribute), name, value);
  return absl::OkStatus();
}

ValueOr Evaluator::CallMacro(const Function& function, Arguments arguments) {
  if (calls_ >= context_.limits().depth) {
    return TooManyCalls(context_.limits().depth);
  }
  ++calls_;
  const absl::Cleanup leave = [this] { --calls_; };
  Scope* scope = NewScope(function.closure);
  NACRE_RETURN_IF_ERROR(BindParameters(function, &arguments, scope));
  TextBuilder out = context_.NewText();
  NACRE_RETURN_IF_ERROR(RunBody(function.macro->body, scope, &out).status());
  return context_.Finish(std::move(out));
}

// The order of jinja2's Macro.__call__: positional, named, defaults, and the
// special names that the body reads.
absl::Status Evaluator::BindParameters(const Function& function,
                                       Arguments* arguments, Scope* scope) {
  const MacroNode& macro = *function.macro;
  const size_t count = macro.parameters.size();
  std::vector<Value>& positional = arguments->positional;
  std::vector<std::optional<Value>> given(count);
  for (size_t i = 0; i < count; ++i) {
    if (i < positional.size()) {
      given[i] = positional[i];
    } else {
      given[i] = arguments->TakeNamed(macro.parameters[i]);
    }
  }
  if (macro.uses_caller) {
    scope->Set("caller", arguments->TakeNamed("caller").value_or(
                             context_.NewUndefined("No caller defined")));
  }
  if (macro.uses_kwargs) {
    Dict* rest = context_.New<Dict>();
    for (const auto& [name, value] : arguments->named) {
      NACRE_ASSIGN_OR_RETURN(const Value key, context_.String(name));
      rest->Set(DictKeyOfName(name), key, value);
    }
    scope->Set("kwargs", Value(static_cast<const Dict*>(rest)));
  } else if (!arguments->named.empty()) {
    return TypeFault("macro '", macro.name, "' takes no keyword argument '",
                     arguments->named[0].first, "'");
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    if (positional.size() > count) {
      rest.assign(positional.begin() + count, positional.end());
    }
    NACRE_ASSIGN_OR_RETURN(const Value tuple,
                           context_.NewList(Kind::kTuple, std::move(rest)));
    scope->Set("varargs", tuple);
  } else if (positional.size() > count) {
    return TypeFault("macro '", macro.name, "' takes not more than ", count,
                     " argument(s)");
  }
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (given[i].has_value()) {
      scope->Set(macro.parameters[i], *given[i]);
    } else if (i >= first_default) {
      NACRE_ASSIGN_OR_RETURN(
          const Value value,
          Evaluate(*macro.defaults[i - first_default], scope));
      scope->Set(macro.parameters[i], value);
    } else {
      scope->Set(macro.parameters[i], context_.NewUndefined(Concat(
                                          "parameter '", macro.parameters[i],
                                          "' was not provided")));
    }
  }
  return absl::OkStatus();
}

ValueOr Evaluator::CallLoop(Loop& loop, const Arguments& arguments) {
  if (!loop.statement->recursive) {
    return TypeFault(
        "The loop must have the 'recursive' marker to be called recursively.");
  }
  NACRE_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("loop", arguments, {"iterable"}, 1));
  if (calls_ >= context_.limits().depth) {
    return TooManyCalls(context_.limits().depth);
  }
  ++calls_;
  const absl::Cleanup leave = [this] { --calls_; };
  TextBuilder out = context_.NewText();
  NACRE_RETURN_IF_ERROR(
      RunLoop(*loop.statement, loop.scope, *bound[0], loop.depth0 + 1, &out));
  return context_.Finish(std::move(out));
}

}  // namespace nacre::chat
