#include "chat/attributes.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/loop.h"
#include "chat/loop_items.h"
#include "chat/methods.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/supported.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

constexpr std::string_view kListChanges[] = {
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem",
                                             "setdefault", "update"};
constexpr std::string_view kNumberAttributes[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate",
    "denominator",      "hex",       "imag",       "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kRefusedAttributes[] = {
    "isdisjoint", "mapping",      "send",          "throw", "close",
    "arguments",  "catch_kwargs", "catch_varargs", "caller"};

template <size_t kSize>
bool Lists(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value Hidden(RenderContext& context, const Value& value,
             std::string_view name) {
  return context.NewUndefined(
      Concat("access to attribute ", ReprOf(name), " of '", TypeName(value),
             "' object is unsafe."),
      /*security=*/true);
}

std::string ObjectName(const Value& value) {
  return value.is_none() ? "None" : Concat(TypeName(value), " object");
}

Value Method(RenderContext& context, const Value& self, std::string_view name,
             Function::What what) {
  Function* function = context.New<Function>();
  function->what = what;
  function->name = std::string(name);
  function->self = self;
  return Value(static_cast<const Function*>(function));
}

absl::StatusOr<Value> LoopAttribute(RenderContext& context, const Value& value,
                                    std::string_view name, bool* found) {
  Loop& loop = value.loop();
  if (name == "index0") return Value(loop.index0);
  if (name == "index") return Value(loop.index0 + 1);
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "depth0") return Value(static_cast<int64_t>(loop.depth0));
  if (name == "depth") return Value(static_cast<int64_t>(loop.depth0) + 1);
  if (name == "cycle" || name == "changed") {
    return Method(context, value, name, Function::What::kLoopMethod);
  }
  if (name == "previtem") {
    return loop.has_previous
               ? loop.previous
               : context.NewUndefined("there is no previous item");
  }
  if (name == "last" || name == "nextitem") {
    NACRE_ASSIGN_OR_RETURN(const bool more, LookAhead(loop, 1));
    if (name == "last") return Value(!more);
    return more ? loop.ahead.front()
                : context.NewUndefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    NACRE_ASSIGN_OR_RETURN(const int64_t length, LoopLength(loop));
    if (name == "length") return Value(length);
    return Value(length - loop.index0 - (name == "revindex" ? 0 : 1));
  }
  *found = false;
  return Value();
}

}  // namespace

absl::StatusOr<Value> TypeAttribute(RenderContext& context, const Value& value,
                                    std::string_view name, bool* found) {
  *found = true;
  if (value.is_undefined()) return UndefinedUse(value);
  if (name.starts_with("__") && name.ends_with("__")) {
    return Hidden(context, value, name);
  }
  switch (value.kind()) {
    case Kind::kNamespace: {
      const Value* attribute = value.space().attributes.FindName(name);
      if (attribute != nullptr) return *attribute;
      break;
    }
    case Kind::kLoop:
      return LoopAttribute(context, value, name, found);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (Lists(kNumberAttributes, name)) {
        return Unsupported("the attribute '", name, "' of a number");
      }
      break;
    case Kind::kList:
      if (Lists(kListChanges, name)) return Hidden(context, value, name);
      break;
    case Kind::kDict:
      if (Lists(kDictChanges, name)) return Hidden(context, value, name);
      break;
    case Kind::kFunction:
      if (name == "name" && value.function().what == Function::What::kMacro) {
        return context.String(value.function().name);
      }
      [[fallthrough]];
    case Kind::kView:
    case Kind::kIterator:
      if (Lists(kRefusedAttributes, name)) {
        return Unsupported("the attribute '", name, "' of a ", TypeName(value));
      }
      break;
    default:
      break;
  }
  if (HasMethod(value, name)) {
    return Method(context, value, name, Function::What::kMethod);
  }
  if (value.is(Kind::kString) && IsRefusedMethod(name)) {
    return Unsupported("the method '", name, "'");
  }
  *found = false;
  return Value();
}

absl::StatusOr<Value> GetAttribute(RenderContext& context, const Value& value,
                                   std::string_view name) {
  bool found = false;
  NACRE_ASSIGN_OR_RETURN(const Value attribute,
                         TypeAttribute(context, value, name, &found));
  if (found) return attribute;
  if (value.is(Kind::kDict)) {
    if (const Value* item = value.dict().FindName(name)) return *item;
  }
  return context.NewUndefined(
      Concat("'", ObjectName(value), "' has no attribute ", ReprOf(name)));
}

absl::StatusOr<Value> GetItem(RenderContext& context, const Value& value,
                              const Value& index) {
  bool found = false;
  NACRE_ASSIGN_OR_RETURN(const Value item,
                         Subscript(context, value, index, &found));
  if (found) return item;
  if (index.is(Kind::kString)) {
    NACRE_ASSIGN_OR_RETURN(
        const Value attribute,
        TypeAttribute(context, value, index.text().bytes, &found));
    if (found) return attribute;
    return context.NewUndefined(Concat("'", ObjectName(value),
                                       "' has no attribute ",
                                       ReprOf(index.text().bytes)));
  }
  TextBuilder name = context.NewText();
  NACRE_RETURN_IF_ERROR(AppendRepr(context, index, &name));
  return context.NewUndefined(
      Concat(ObjectName(value), " has no element ", name.TakeBytes()));
}

}  // namespace nacre::chat
