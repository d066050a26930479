#include "chat/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "chat/errors.h"
#include "chat/format_text.h"
#include "chat/loop.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

absl::Status BadOperands(Operator op, const Value& left, const Value& right) {
  return TypeFault("unsupported operand type(s) for ", SymbolOf(op), ": '",
                   TypeName(left), "' and '", TypeName(right), "'");
}

absl::Status TooLarge() {
  return Unsupported("an integer does not fit into 64 bits");
}

int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Of -2^63 and -1 the quotient does not fit.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double FloorMod(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloorDivide(double a, double b) {
  const double quotient = (a - FloorMod(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return ValueFault("0 cannot be raised to a negative power");
    return Value(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t power = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(power, base, &power)) {
      return TooLarge();
    }
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return TooLarge();
    }
  }
  return Value(power);
}

absl::StatusOr<Value> Integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      if (b == 0) return ValueFault("division by zero");
      if (op == Operator::kDivide) {
        return Value(static_cast<double>(a) / static_cast<double>(b));
      }
      if (op == Operator::kModulo) return Value(FloorMod(a, b));
      overflow = a == std::numeric_limits<int64_t>::min() && b == -1;
      if (!overflow) result = FloorDivide(a, b);
      break;
  }
  if (overflow) return TooLarge();
  return Value(result);
}

absl::StatusOr<Value> Reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) {
        return ValueFault("0.0 cannot be raised to a negative power");
      }
      if (a < 0 && b != std::floor(b)) {
        return Unsupported("a complex number");
      }
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return ValueFault("a power is too large");
      }
      return Value(power);
    }
    default:
      break;
  }
  if (b == 0) return ValueFault("float division by zero");
  if (op == Operator::kDivide) return Value(a / b);
  return Value(op == Operator::kModulo ? FloorMod(a, b) : FloorDivide(a, b));
}

bool IsSafeText(const Value& value) {
  return value.is(Kind::kString) && value.text().safe;
}

absl::StatusOr<Value> Join(RenderContext& context, const Value& left,
                           const Value& right) {
  TextBuilder out = context.NewText();
  out.Append(left.text());
  out.Append(right.text());
  return context.Finish(std::move(out));
}

absl::StatusOr<Value> Repeat(RenderContext& context, const Value& value,
                             int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is(Kind::kString)) {
    const Text& text = value.text();
    TextBuilder out = context.NewText();
    for (int64_t i = 0; i < count && !out.overflowed() && !text.bytes.empty();
         ++i) {
      out.Append(text);
      NACRE_RETURN_IF_ERROR(context.Charge(i % 64 == 0 ? 1 : 0));
    }
    return context.Finish(std::move(out));
  }
  const std::vector<Value>& items = value.list().items;
  const int64_t size = static_cast<int64_t>(items.size());
  int64_t total = 0;
  if (__builtin_mul_overflow(size, count, &total)) {
    total = std::numeric_limits<int64_t>::max();
  }
  NACRE_RETURN_IF_ERROR(context.Charge(total));
  std::vector<Value> repeated;
  repeated.reserve(total);
  for (int64_t i = 0; size > 0 && i < count; ++i) {
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return context.NewList(value.kind(), std::move(repeated));
}

bool IsRepeatable(const Value& value) {
  return value.is(Kind::kString) || value.is(Kind::kList) ||
         value.is(Kind::kTuple);
}

}  // namespace

absl::StatusOr<Value> Arithmetic(RenderContext& context, Operator op,
                                 const Value& left, const Value& right) {
  // Python asks the left value first; a text formats what is undefined.
  if (left.is_undefined()) return UndefinedUse(left);
  if (op == Operator::kModulo && left.is(Kind::kString)) {
    return PercentFormat(context, left.text(), right);
  }
  if (right.is_undefined()) return UndefinedUse(right);
  if (left.is_integer() && right.is_integer()) {
    return Integers(op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return Reals(op, left.real(), right.real());
  }
  if (IsSafeText(left) || IsSafeText(right)) {
    return Unsupported("arithmetic with a text marked as safe");
  }
  if (op == Operator::kAdd && left.kind() == right.kind()) {
    if (left.is(Kind::kString)) return Join(context, left, right);
    if (left.is(Kind::kList) || left.is(Kind::kTuple)) {
      std::vector<Value> items = left.list().items;
      const std::vector<Value>& more = right.list().items;
      NACRE_RETURN_IF_ERROR(
          context.Charge(static_cast<int64_t>(items.size() + more.size())));
      items.insert(items.end(), more.begin(), more.end());
      return context.NewList(left.kind(), std::move(items));
    }
  }
  if (op == Operator::kMultiply) {
    if (IsRepeatable(left) && right.is_integer()) {
      return Repeat(context, left, right.integer());
    }
    if (left.is_integer() && IsRepeatable(right)) {
      return Repeat(context, right, left.integer());
    }
  }
  if (left.is(Kind::kView) || right.is(Kind::kView) ||
      (left.is(Kind::kDict) && right.is(Kind::kDict))) {
    // Python has set operations on views, and "|" of dicts is a filter here.
    if (op == Operator::kSubtract && left.is(Kind::kView)) {
      return Unsupported("'-' of the view of a dict");
    }
  }
  return BadOperands(op, left, right);
}

absl::StatusOr<Value> Sign(Operator op, const Value& value) {
  if (value.is_undefined()) return UndefinedUse(value);
  if (value.is_integer()) {
    if (op == Operator::kAdd) return Value(value.integer());
    if (value.integer() == std::numeric_limits<int64_t>::min()) {
      return TooLarge();
    }
    return Value(-value.integer());
  }
  if (value.is(Kind::kFloat)) {
    return op == Operator::kAdd ? value : Value(-value.real());
  }
  return TypeFault("bad operand type for unary ", SymbolOf(op), ": '",
                   TypeName(value), "'");
}

}  // namespace nacre::chat
