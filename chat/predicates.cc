#include "chat/predicates.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/string_methods.h"
#include "common/quoted.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

constexpr std::string_view kTests[] = {
    "boolean",   "callable", "defined",  "divisibleby", "eq",   "equalto",
    "even",      "false",    "filter",   "float",       "ge",   "greaterthan",
    "gt",        "in",       "integer",  "iterable",    "le",   "lessthan",
    "lower",     "lt",       "mapping",  "ne",          "none", "number",
    "odd",       "sameas",   "sequence", "string",      "test", "true",
    "undefined", "upper",
};

std::optional<Operator> ComparisonTest(std::string_view name) {
  if (name == "eq" || name == "equalto" || name == "==") {
    return Operator::kEqual;
  }
  if (name == "ne" || name == "!=") return Operator::kNotEqual;
  if (name == "lt" || name == "lessthan" || name == "<") {
    return Operator::kLess;
  }
  if (name == "le" || name == "<=") return Operator::kLessEqual;
  if (name == "gt" || name == "greaterthan" || name == ">") {
    return Operator::kGreater;
  }
  if (name == "ge" || name == ">=") return Operator::kGreaterEqual;
  if (name == "in") return Operator::kIn;
  return std::nullopt;
}

// Tests of the kind alone. Nullopt: it is none of them.
std::optional<bool> KindTest(std::string_view name, const Value& value) {
  const Kind kind = value.kind();
  if (name == "defined") return kind != Kind::kUndefined;
  if (name == "undefined") return kind == Kind::kUndefined;
  if (name == "none") return kind == Kind::kNone;
  if (name == "boolean") return kind == Kind::kBool;
  if (name == "true") return kind == Kind::kBool && value.integer() != 0;
  if (name == "false") return kind == Kind::kBool && value.integer() == 0;
  if (name == "integer") return kind == Kind::kInt;
  if (name == "float") return kind == Kind::kFloat;
  if (name == "number") return value.is_number();
  if (name == "string") return kind == Kind::kString;
  if (name == "mapping") return kind == Kind::kDict;
  // Python finds len() and __getitem__ in an undefined value too.
  if (name == "sequence") {
    return value.is_list_like() || kind == Kind::kString ||
           kind == Kind::kDict || kind == Kind::kUndefined;
  }
  if (name == "iterable") {
    return value.is_list_like() || kind == Kind::kString ||
           kind == Kind::kDict || kind == Kind::kUndefined ||
           kind == Kind::kView || kind == Kind::kIterator ||
           kind == Kind::kLoop;
  }
  if (name == "callable") {
    return kind == Kind::kFunction || kind == Kind::kUndefined ||
           kind == Kind::kLoop;
  }
  return std::nullopt;
}

absl::StatusOr<bool> SameAs(const Value& left, const Value& right) {
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return left.integer() == right.integer();
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kString:
    case Kind::kTuple:
    case Kind::kUndefined:
    case Kind::kFunction:
      // CPython's cache of small values decides.
      return Unsupported("'sameas' of two values of type ", TypeName(left));
    default:
      return left.object() == right.object();
  }
}

absl::StatusOr<bool> Divides(RenderContext& context, std::string_view name,
                             const Value& value, const Arguments& arguments) {
  Value divisor(int64_t{2});
  if (name == "divisibleby") {
    NACRE_ASSIGN_OR_RETURN(const Bound bound,
                           Bind(name, arguments, {"num"}, 1));
    divisor = *bound[0];
  } else {
    NACRE_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  }
  NACRE_ASSIGN_OR_RETURN(
      const Value rest, Arithmetic(context, Operator::kModulo, value, divisor));
  return Equal(context, rest, Value(int64_t{name == "odd" ? 1 : 0}));
}

}  // namespace

bool IsTest(std::string_view name) {
  return std::find(std::begin(kTests), std::end(kTests), name) !=
         std::end(kTests);
}

absl::StatusOr<bool> CallTest(RenderContext& context, std::string_view name,
                              const Value& value, const Arguments& arguments) {
  if (const std::optional<Operator> op = ComparisonTest(name)) {
    NACRE_ASSIGN_OR_RETURN(const Bound bound,
                           Bind(name, arguments, {"other"}, 1));
    return Compare(context, *op, value, *bound[0]);
  }
  if (name == "odd" || name == "even" || name == "divisibleby") {
    return Divides(context, name, value, arguments);
  }
  if (name == "sameas") {
    NACRE_ASSIGN_OR_RETURN(const Bound bound,
                           Bind(name, arguments, {"other"}, 1));
    return SameAs(value, *bound[0]);
  }
  NACRE_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  if (const std::optional<bool> result = KindTest(name, value)) return *result;
  if (name == "lower" || name == "upper") {
    NACRE_ASSIGN_OR_RETURN(const Value text, Str(context, value));
    NACRE_ASSIGN_OR_RETURN(
        const Value holds,
        CallStringMethod(context, text, Concat("is", name), {}));
    return Truth(holds);
  }
  if (name == "filter" || name == "test") {
    if (!value.is(Kind::kString)) {
      NACRE_RETURN_IF_ERROR(DictKey(value).status());
      return false;
    }
    const std::string_view asked = value.text().bytes;
    return name == "filter" ? IsFilter(asked) : IsTest(asked);
  }
  return Unsupported("the test ", Quoted(AbslView(name)), " is not supported");
}

}  // namespace nacre::chat
