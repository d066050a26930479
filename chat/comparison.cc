// The part of the operators that compares and sorts.

#include <algorithm>
#include <cmath>

#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/operators.h"
#include "common/status_macros.h"

namespace nacre::chat {

std::string_view SymbolOf(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "** or pow()";
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    default:
      return "==";
  }
}

namespace {

// -1, 0 or 1, exact for integers of any size; 2: not comparable (nan).
int CompareNumbers(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) {
    return left.integer() < right.integer()   ? -1
           : left.integer() > right.integer() ? 1
                                              : 0;
  }
  const long double a = left.is_integer()
                            ? static_cast<long double>(left.integer())
                            : static_cast<long double>(left.real());
  const long double b = right.is_integer()
                            ? static_cast<long double>(right.integer())
                            : static_cast<long double>(right.real());
  if (std::isnan(a) || std::isnan(b)) return 2;
  return a < b ? -1 : a > b ? 1 : 0;
}

absl::StatusOr<bool> EqualDicts(RenderContext& context, const Dict& left,
                                const Dict& right) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    NACRE_ASSIGN_OR_RETURN(const std::string name, DictKey(key));
    const Value* other = right.Find(name);
    if (other == nullptr) return false;
    NACRE_ASSIGN_OR_RETURN(const bool equal, Equal(context, value, *other));
    if (!equal) return false;
  }
  return true;
}

// Containers of Python take identical objects for equal.
absl::StatusOr<bool> SameOrEqual(RenderContext& context, const Value& left,
                                 const Value& right) {
  if (left.kind() == right.kind() && !left.is_number() && !left.is_none() &&
      left.object() == right.object()) {
    return true;
  }
  return Equal(context, left, right);
}

}  // namespace

absl::StatusOr<bool> Equal(RenderContext& context, const Value& left,
                           const Value& right) {
  const Nested nested(context);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context.Charge(1));
  if (left.is_number() && right.is_number()) {
    return CompareNumbers(left, right) == 0;
  }
  if (left.kind() != right.kind()) {
    if (left.is(Kind::kView) || right.is(Kind::kView)) {
      return false;
    }
    return false;
  }
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      NACRE_RETURN_IF_ERROR(
          context.Charge(static_cast<int64_t>(left.text().bytes.size()) / 256));
      return left.text().bytes == right.text().bytes;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      const std::vector<Value>& a = left.list().items;
      const std::vector<Value>& b = right.list().items;
      if (a.size() != b.size()) return false;
      for (size_t i = 0; i < a.size(); ++i) {
        NACRE_ASSIGN_OR_RETURN(const bool equal,
                               SameOrEqual(context, a[i], b[i]));
        if (!equal) return false;
      }
      return true;
    }
    case Kind::kDict:
      return EqualDicts(context, left.dict(), right.dict());
    case Kind::kView:
      return Unsupported("comparing views of dicts is not supported");
    case Kind::kFunction:
      if (left.function().what == Function::What::kMethod ||
          right.function().what == Function::What::kMethod) {
        return Unsupported("comparing methods is not supported");
      }
      return left.object() == right.object();
    default:
      return left.object() == right.object();
  }
}

namespace {

bool Holds(Operator op, int order) {
  switch (op) {
    case Operator::kLess:
      return order == -1;
    case Operator::kLessEqual:
      return order == -1 || order == 0;
    case Operator::kGreater:
      return order == 1;
    default:
      return order == 1 || order == 0;
  }
}

absl::StatusOr<bool> Ordered(RenderContext& context, Operator op,
                             const Value& left, const Value& right) {
  const Nested nested(context);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context.Charge(1));
  if (left.is_undefined()) return UndefinedUse(left);
  if (right.is_undefined()) return UndefinedUse(right);
  if (left.is_number() && right.is_number()) {
    return Holds(op, CompareNumbers(left, right));
  }
  if (left.kind() == right.kind() && left.is(Kind::kString)) {
    // The order of UTF-8 is that of code points.
    const int order = left.text().bytes.compare(right.text().bytes);
    return Holds(op, order < 0 ? -1 : order > 0 ? 1 : 0);
  }
  if (left.kind() == right.kind() &&
      (left.is(Kind::kList) || left.is(Kind::kTuple))) {
    const std::vector<Value>& a = left.list().items;
    const std::vector<Value>& b = right.list().items;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      NACRE_ASSIGN_OR_RETURN(const bool equal,
                             SameOrEqual(context, a[i], b[i]));
      if (!equal) return Ordered(context, op, a[i], b[i]);
    }
    return Holds(op, a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0);
  }
  if (left.is(Kind::kView) && right.is(Kind::kView)) {
    return Unsupported("comparing views of dicts is not supported");
  }
  return TypeFault("'", SymbolOf(op), "' not supported between instances of '",
                   TypeName(left), "' and '", TypeName(right), "'");
}

}  // namespace

absl::StatusOr<bool> Compare(RenderContext& context, Operator op,
                             const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
      return Equal(context, left, right);
    case Operator::kNotEqual: {
      NACRE_ASSIGN_OR_RETURN(const bool equal, Equal(context, left, right));
      return !equal;
    }
    case Operator::kIn:
      return Contains(context, right, left);
    case Operator::kNotIn: {
      NACRE_ASSIGN_OR_RETURN(const bool in, Contains(context, right, left));
      return !in;
    }
    default:
      return Ordered(context, op, left, right);
  }
}

absl::StatusOr<bool> Contains(RenderContext& context, const Value& container,
                              const Value& item) {
  switch (container.kind()) {
    case Kind::kString: {
      if (!item.is(Kind::kString)) {
        return TypeFault("'in <string>' requires string as left operand, not ",
                         TypeName(item));
      }
      NACRE_RETURN_IF_ERROR(context.Charge(
          static_cast<int64_t>(container.text().bytes.size()) / 64));
      return container.text().bytes.find(item.text().bytes) !=
             std::string::npos;
    }
    case Kind::kDict: {
      NACRE_ASSIGN_OR_RETURN(const std::string key, DictKey(item));
      return container.dict().Find(key) != nullptr;
    }
    case Kind::kView:
      if (container.view().what == View::What::kKeys) {
        NACRE_ASSIGN_OR_RETURN(const std::string key, DictKey(item));
        return container.view().dict->Find(key) != nullptr;
      }
      break;
    case Kind::kUndefined:
      return false;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      break;
    case Kind::kIterator:
      return Unsupported("'in' of an iterator is not supported");
    case Kind::kLoop:
      return Unsupported("'in' of a loop is not supported");
    default:
      return TypeFault("argument of type '", TypeName(container),
                       "' is not iterable");
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                         Items(context, container));
  for (const Value& candidate : items) {
    NACRE_ASSIGN_OR_RETURN(const bool equal,
                           SameOrEqual(context, candidate, item));
    if (equal) return true;
  }
  return false;
}

absl::Status SortIndices(RenderContext& context, const std::vector<Value>& keys,
                         bool reverse, std::vector<size_t>* order) {
  order->resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) (*order)[i] = i;
  // std::stable_sort cannot stop at an error, and an order that is none (nan)
  // would confuse it: a merge sort of our own does both.
  std::vector<size_t> merged(keys.size());
  for (size_t width = 1; width < keys.size(); width *= 2) {
    for (size_t begin = 0; begin < keys.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keys.size());
      const size_t end = std::min(begin + 2 * width, keys.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value& a = keys[(*order)[left]];
          const Value& b = keys[(*order)[right]];
          NACRE_ASSIGN_OR_RETURN(
              take_right, Ordered(context, Operator::kLess, reverse ? a : b,
                                  reverse ? b : a));
        }
        merged[out] = (*order)[take_right ? right++ : left++];
      }
    }
    order->swap(merged);
  }
  return absl::OkStatus();
}

absl::Status SortPairs(RenderContext& context,
                       std::vector<std::pair<Value, Value>>* pairs) {
  std::vector<Value> keys;
  for (const auto& [key, value] : *pairs) keys.push_back(key);
  std::vector<size_t> order;
  NACRE_RETURN_IF_ERROR(SortIndices(context, keys, false, &order));
  std::vector<std::pair<Value, Value>> sorted;
  sorted.reserve(order.size());
  for (const size_t i : order) sorted.push_back((*pairs)[i]);
  *pairs = std::move(sorted);
  return absl::OkStatus();
}

}  // namespace nacre::chat
