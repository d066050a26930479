// The part of the operators that takes sequences apart.

#include <algorithm>
#include <limits>

#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/operators.h"
#include "common/status_macros.h"

namespace nacre::chat {

absl::StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(value.text().length());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return static_cast<int64_t>(value.list().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().items.size());
    case Kind::kView:
      return static_cast<int64_t>(value.view().dict->items.size());
    case Kind::kLoop:
      return Unsupported("the length of a loop; use loop.length");
    default:
      return TypeFault("object of type '", TypeName(value), "' has no len()");
  }
}

namespace {

absl::StatusOr<std::vector<Value>> Characters(RenderContext& context,
                                              const Text& text) {
  std::vector<Value> items;
  NACRE_RETURN_IF_ERROR(
      context.Charge(static_cast<int64_t>(text.bytes.size())));
  size_t size = 0;
  for (size_t at = 0; at < text.bytes.size(); at += size) {
    CodePointAt(text.bytes, at, &size);
    NACRE_ASSIGN_OR_RETURN(const Value item,
                           context.Slice(text, at, at + size));
    items.push_back(item);
  }
  return items;
}

}  // namespace

absl::StatusOr<std::vector<Value>> Items(RenderContext& context,
                                         const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kString:
      return Characters(context, value.text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      NACRE_RETURN_IF_ERROR(
          context.Charge(static_cast<int64_t>(value.list().items.size()) / 4));
      return value.list().items;
    case Kind::kIterator: {
      Iterator& iterator = value.iterator();
      items.assign(iterator.items.begin() + iterator.next,
                   iterator.items.end());
      iterator.next = iterator.items.size();
      NACRE_RETURN_IF_ERROR(iterator.error);
      return items;
    }
    case Kind::kDict:
    case Kind::kView: {
      const bool is_dict = value.is(Kind::kDict);
      const Dict& dict = is_dict ? value.dict() : *value.view().dict;
      const View::What what = is_dict ? View::What::kKeys : value.view().what;
      NACRE_RETURN_IF_ERROR(
          context.Charge(static_cast<int64_t>(dict.items.size())));
      for (const auto& [key, item] : dict.items) {
        if (what == View::What::kItems) {
          NACRE_ASSIGN_OR_RETURN(const Value pair,
                                 context.NewList(Kind::kTuple, {key, item}));
          items.push_back(pair);
        } else {
          items.push_back(what == View::What::kKeys ? key : item);
        }
      }
      return items;
    }
    case Kind::kLoop:
      return Unsupported("iterating over a loop is not supported");
    default:
      return TypeFault("'", TypeName(value), "' object is not iterable");
  }
}

absl::StatusOr<Value> Subscript(RenderContext& context, const Value& value,
                                const Value& index, bool* found) {
  *found = true;
  if (value.is_undefined()) return UndefinedUse(value);
  if (value.is(Kind::kDict)) {
    const auto key = DictKey(index);
    if (!key.ok() && key.status().code() == absl::StatusCode::kUnimplemented) {
      return key.status();
    }
    const Value* item = key.ok() ? value.dict().Find(*key) : nullptr;
    if (item != nullptr) return *item;
  } else if (index.is_integer() &&
             (value.is_list_like() || value.is(Kind::kString))) {
    NACRE_ASSIGN_OR_RETURN(const int64_t size, Length(value));
    int64_t at = index.integer();
    if (at < 0) at += size;
    if (at >= 0 && at < size) {
      if (value.is_list_like()) return value.list().items[at];
      const Text& text = value.text();
      NACRE_RETURN_IF_ERROR(context.Charge(
          text.ascii ? 0 : static_cast<int64_t>(text.bytes.size()) / 64));
      const size_t begin = text.ByteOffset(at);
      size_t bytes = 0;
      CodePointAt(text.bytes, begin, &bytes);
      return context.Slice(text, begin, begin + bytes);
    }
  }
  *found = false;
  return Value();
}

absl::StatusOr<int64_t> Index(const Value& value, std::string_view what) {
  if (value.is_integer()) return value.integer();
  return TypeFault(what, " is of type '", TypeName(value),
                   "', expected an integer");
}

namespace {

// A bound of a slice within [low, high].
absl::StatusOr<int64_t> SliceBound(const Value& value, int64_t fallback,
                                   int64_t size, int64_t low, int64_t high) {
  if (value.is_none()) return fallback;
  if (!value.is_integer()) {
    return TypeFault(
        "slice indices must be integers or None or have an __index__ method");
  }
  int64_t at = value.integer();
  if (at < 0) at = at < -size - 1 ? low : at + size;
  return std::clamp(at, low, high);
}

}  // namespace

absl::StatusOr<Value> SliceOf(RenderContext& context, const Value& value,
                              const Value& begin, const Value& end,
                              const Value& step) {
  if (value.is_undefined()) return UndefinedUse(value);
  if (!value.is_list_like() && !value.is(Kind::kString)) {
    if (value.is(Kind::kDict)) return TypeFault("unhashable type: 'slice'");
    return TypeFault("'", TypeName(value), "' object is not subscriptable");
  }
  if (value.is(Kind::kRange)) {
    return Unsupported("a slice of a range is not supported");
  }
  NACRE_ASSIGN_OR_RETURN(const int64_t size, Length(value));
  int64_t stride = 1;
  if (!step.is_none()) {
    if (!step.is_integer()) {
      return TypeFault("slice indices must be integers or None");
    }
    stride = step.integer();
    if (stride == 0) return ValueFault("slice step cannot be zero");
  }
  const bool back = stride < 0;
  const int64_t low = back ? -1 : 0;
  const int64_t high = back ? size - 1 : size;
  NACRE_ASSIGN_OR_RETURN(const int64_t first,
                         SliceBound(begin, back ? high : low, size, low, high));
  NACRE_ASSIGN_OR_RETURN(const int64_t last,
                         SliceBound(end, back ? low : high, size, low, high));
  NACRE_RETURN_IF_ERROR(context.Charge(size / 16 + 1));
  if (value.is(Kind::kString) && stride == 1) {
    const Text& text = value.text();
    const size_t from = text.ByteOffset(first);
    const size_t to = last <= first ? from : text.ByteOffset(last);
    return context.Slice(text, from, to);
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(context, value));
  std::vector<Value> picked;
  for (int64_t at = first; back ? at > last : at < last;) {
    picked.push_back(items[at]);
    // A large stride ends the loop without an overflow.
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (!value.is(Kind::kString)) {
    return context.NewList(value.kind(), std::move(picked));
  }
  TextBuilder out = context.NewText();
  for (const Value& character : picked) out.Append(character.text());
  return context.Finish(std::move(out));
}

}  // namespace nacre::chat
