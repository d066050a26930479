#include "chat/expression_evaluator.h"

#include <algorithm>
#include <utility>

#include "chat/attributes.h"
#include "chat/concat.h"
#include "chat/environment.h"
#include "chat/errors.h"
#include "chat/filters.h"
#include "chat/methods.h"
#include "chat/operators.h"
#include "chat/predicates.h"
#include "chat/python_text.h"
#include "common/status_macros.h"

namespace nacre::chat {

ValueOr ExpressionEvaluator::Evaluate(const Expr& expr, Scope* scope) {
  const Nested nested(context_);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context_.Charge(1));
  line_ = expr.line;
  return EvaluateKind(expr, scope);
}

ValueOr ExpressionEvaluator::EvaluateKind(const Expr& expr, Scope* scope) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return EvaluateName(expr, scope);
    case ExprKind::kCaptured:
      return captured_;
    case ExprKind::kAttribute: {
      NACRE_ASSIGN_OR_RETURN(const Value value,
                             Evaluate(*expr.children[0], scope));
      return GetAttribute(context_, value, expr.name);
    }
    case ExprKind::kItem: {
      NACRE_ASSIGN_OR_RETURN(const Value value,
                             Evaluate(*expr.children[0], scope));
      NACRE_ASSIGN_OR_RETURN(const Value index,
                             Evaluate(*expr.children[1], scope));
      return GetItem(context_, value, index);
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr, scope);
    case ExprKind::kList:
    case ExprKind::kTuple: {
      NACRE_ASSIGN_OR_RETURN(std::vector<Value> items,
                             EvaluateAll(expr.children, scope));
      return context_.NewList(
          expr.kind == ExprKind::kList ? Kind::kList : Kind::kTuple,
          std::move(items));
    }
    case ExprKind::kDict:
      return EvaluateDict(expr, scope);
    case ExprKind::kTernary:
      return EvaluateTernary(expr, scope);
    case ExprKind::kOr:
    case ExprKind::kAnd:
    case ExprKind::kNot:
      return EvaluateLogic(expr, scope);
    case ExprKind::kCompare:
      return EvaluateCompare(expr, scope);
    case ExprKind::kBinary: {
      NACRE_ASSIGN_OR_RETURN(const Value left,
                             Evaluate(*expr.children[0], scope));
      NACRE_ASSIGN_OR_RETURN(const Value right,
                             Evaluate(*expr.children[1], scope));
      return Arithmetic(context_, expr.operators[0], left, right);
    }
    case ExprKind::kUnary: {
      NACRE_ASSIGN_OR_RETURN(const Value value,
                             Evaluate(*expr.children[0], scope));
      return Sign(expr.operators[0], value);
    }
    case ExprKind::kConcat:
      return EvaluateConcat(expr, scope);
    case ExprKind::kCall:
      return EvaluateCall(expr, scope, nullptr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return EvaluateFilterOrTest(expr, scope);
  }
  return Value();
}

ValueOr ExpressionEvaluator::EvaluateName(const Expr& expr, Scope* scope) {
  if (const Value* value = scope->Find(expr.name)) return *value;
  if (IsGlobal(expr.name)) {
    Function* function = context_.New<Function>();
    function->name = expr.name;
    return Value(static_cast<const Function*>(function));
  }
  return context_.NewUndefined(Concat("'", expr.name, "' is undefined"));
}

ValueOr ExpressionEvaluator::EvaluateLogic(const Expr& expr, Scope* scope) {
  NACRE_ASSIGN_OR_RETURN(const Value left, Evaluate(*expr.children[0], scope));
  if (expr.kind == ExprKind::kNot) return Value(!Truth(left));
  if (Truth(left) == (expr.kind == ExprKind::kOr)) return left;
  return Evaluate(*expr.children[1], scope);
}

ValueOr ExpressionEvaluator::EvaluateTernary(const Expr& expr, Scope* scope) {
  NACRE_ASSIGN_OR_RETURN(const Value test, Evaluate(*expr.children[0], scope));
  if (Truth(test)) return Evaluate(*expr.children[1], scope);
  if (expr.children[2] != nullptr) return Evaluate(*expr.children[2], scope);
  return context_.NewUndefined(
      "the inline if-expression evaluated to false and no else section was "
      "defined.");
}

ValueOr ExpressionEvaluator::EvaluateCompare(const Expr& expr, Scope* scope) {
  NACRE_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.children[0], scope));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(const Value right,
                           Evaluate(*expr.children[i + 1], scope));
    NACRE_ASSIGN_OR_RETURN(const bool holds,
                           Compare(context_, expr.operators[i], left, right));
    if (!holds) return Value(false);
    left = right;
  }
  return Value(true);
}

ValueOr ExpressionEvaluator::EvaluateConcat(const Expr& expr, Scope* scope) {
  TextBuilder out = context_.NewText();
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> parts,
                         EvaluateAll(expr.children, scope));
  for (const Value& part : parts) {
    NACRE_RETURN_IF_ERROR(AppendStr(context_, part, &out));
  }
  return context_.Finish(std::move(out));
}

ValueOr ExpressionEvaluator::EvaluateDict(const Expr& expr, Scope* scope) {
  Dict* dict = context_.New<Dict>();
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    NACRE_ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.children[i], scope));
    NACRE_ASSIGN_OR_RETURN(const Value value,
                           Evaluate(*expr.children[i + 1], scope));
    NACRE_ASSIGN_OR_RETURN(const std::string name, DictKey(key));
    dict->Set(name, key, value);
  }
  return Value(static_cast<const Dict*>(dict));
}

ValueOr ExpressionEvaluator::EvaluateSlice(const Expr& expr, Scope* scope) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (expr.children[i] == nullptr) continue;
    NACRE_ASSIGN_OR_RETURN(parts[i], Evaluate(*expr.children[i], scope));
  }
  return SliceOf(context_, parts[0], parts[1], parts[2], parts[3]);
}

absl::StatusOr<std::vector<Value>> ExpressionEvaluator::EvaluateAll(
    const std::vector<const Expr*>& exprs, Scope* scope) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const Expr* expr : exprs) {
    NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr, scope));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<Arguments> ExpressionEvaluator::EvaluateArguments(
    const CallNode& call, Scope* scope) {
  Arguments arguments;
  NACRE_ASSIGN_OR_RETURN(arguments.positional,
                         EvaluateAll(call.positional, scope));
  for (const auto& [name, expr] : call.named) {
    NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr, scope));
    arguments.named.emplace_back(name, value);
  }
  if (call.star != nullptr) {
    NACRE_ASSIGN_OR_RETURN(const Value list, Evaluate(*call.star, scope));
    NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                           Items(context_, list));
    arguments.positional.insert(arguments.positional.end(), items.begin(),
                                items.end());
  }
  if (call.star_star != nullptr) {
    NACRE_ASSIGN_OR_RETURN(const Value dict, Evaluate(*call.star_star, scope));
    if (!dict.is(Kind::kDict)) {
      return TypeFault("argument after ** must be a mapping, not ",
                       TypeName(dict));
    }
    for (const auto& [key, value] : dict.dict().items) {
      if (!key.is(Kind::kString)) return TypeFault("keywords must be strings");
      const std::string& name = key.text().bytes;
      for (const auto& [known, unused] : arguments.named) {
        if (known == name) {
          return TypeFault("got multiple values for keyword argument '", name,
                           "'");
        }
      }
      arguments.named.emplace_back(name, value);
    }
  }
  return arguments;
}

ValueOr ExpressionEvaluator::EvaluateFilterOrTest(const Expr& expr,
                                                  Scope* scope) {
  NACRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0], scope));
  NACRE_ASSIGN_OR_RETURN(const Arguments arguments,
                         EvaluateArguments(expr.call, scope));
  if (expr.kind == ExprKind::kFilter) {
    return CallFilter(context_, expr.name, value, arguments);
  }
  NACRE_ASSIGN_OR_RETURN(const bool holds,
                         CallTest(context_, expr.name, value, arguments));
  return Value(holds);
}

ValueOr ExpressionEvaluator::EvaluateCall(const Expr& expr, Scope* scope,
                                          const Value* caller) {
  NACRE_ASSIGN_OR_RETURN(const Value callee,
                         Evaluate(*expr.children[0], scope));
  NACRE_ASSIGN_OR_RETURN(Arguments arguments,
                         EvaluateArguments(expr.call, scope));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expr.line;
  return Call(callee, std::move(arguments));
}

ValueOr ExpressionEvaluator::Call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return UndefinedUse(callee);
  if (callee.is(Kind::kLoop)) return calls_.CallLoop(callee.loop(), arguments);
  if (!callee.is(Kind::kFunction)) {
    return TypeFault("'", TypeName(callee), "' object is not callable");
  }
  const Function& function = callee.function();
  switch (function.what) {
    case Function::What::kGlobal:
      return CallGlobal(context_, function.name, arguments);
    case Function::What::kMethod:
      return CallMethod(context_, function.self, function.name, arguments);
    case Function::What::kLoopMethod:
      return CallLoopMethod(function, arguments);
    case Function::What::kMacro:
      break;
  }
  return calls_.CallMacro(function, std::move(arguments));
}

ValueOr ExpressionEvaluator::CallLoopMethod(const Function& method,
                                            const Arguments& arguments) {
  Loop& loop = method.self.loop();
  const std::vector<Value>& values = arguments.positional;
  if (!arguments.named.empty()) {
    return TypeFault("loop.", method.name, "() takes no keyword arguments");
  }
  if (method.name == "cycle") {
    if (values.empty()) return TypeFault("no items for cycling given");
    return values[loop.index0 % values.size()];
  }
  bool same = loop.has_changed && loop.last_changed.size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(same,
                           Equal(context_, loop.last_changed[i], values[i]));
  }
  loop.has_changed = true;
  loop.last_changed = values;
  return Value(!same);
}

}  // namespace nacre::chat
