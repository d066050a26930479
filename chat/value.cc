#include "chat/value.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/loop.h"
#include "common/status_macros.h"

namespace nacre::chat {

Value::Value(Kind kind, const List* list)
    : Value(kind, static_cast<const Object*>(list)) {}

const Undefined& Value::undefined() const {
  return *static_cast<const Undefined*>(object_);
}
const List& Value::list() const { return *static_cast<const List*>(object_); }
const Dict& Value::dict() const { return *static_cast<const Dict*>(object_); }
const View& Value::view() const { return *static_cast<const View*>(object_); }
Iterator& Value::iterator() const {
  return *const_cast<Iterator*>(static_cast<const Iterator*>(object_));
}
Namespace& Value::space() const {
  return *const_cast<Namespace*>(static_cast<const Namespace*>(object_));
}
const Function& Value::function() const {
  return *static_cast<const Function*>(object_);
}
Loop& Value::loop() const {
  return *const_cast<Loop*>(static_cast<const Loop*>(object_));
}

const Value* Dict::Find(const std::string& key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::FindName(std::string_view name) const {
  return Find(DictKeyOfName(name));
}

void Dict::Set(const std::string& key, Value name, Value value) {
  const auto [place, added] = index.try_emplace(key, items.size());
  if (added) {
    items.emplace_back(name, value);
  } else {
    // Python keeps the first key.
    items[place->second].second = value;
  }
}

std::string DictKeyOfName(std::string_view name) { return Concat("s", name); }

absl::StatusOr<std::string> DictKey(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return DictKeyOfName(value.text().bytes);
    case Kind::kBool:
    case Kind::kInt:
      return Concat("i", value.integer());
    case Kind::kFloat: {
      const double real = value.real();
      if (real == std::floor(real) && std::abs(real) < 0x1p63) {
        return Concat("i", static_cast<int64_t>(real));
      }
      std::string key(sizeof(real) + 1, 'f');
      std::memcpy(key.data() + 1, &real, sizeof(real));
      return key;
    }
    case Kind::kNone:
      return std::string("n");
    case Kind::kUndefined:
      return std::string("u");
    case Kind::kTuple: {
      // A cycle is impossible: tuples hold what was there before them. Deep
      // ones are refused, since this is a recursion.
      std::string key = "t";
      for (const Value& item : value.list().items) {
        if (item.is(Kind::kTuple)) {
          return Unsupported("a tuple in a tuple as the key of a dict");
        }
        NACRE_ASSIGN_OR_RETURN(const std::string part, DictKey(item));
        key += Concat(part.size(), ":", part);
      }
      return key;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      return TypeFault("unhashable type: '", TypeName(value), "'");
    default:
      return Concat("o", reinterpret_cast<uintptr_t>(value.object()));
  }
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      switch (value.view().what) {
        case View::What::kKeys:
          return "dict_keys";
        case View::What::kValues:
          return "dict_values";
        case View::What::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return value.function().what == Function::What::kMacro ? "Macro"
                                                             : "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    case Kind::kView:
      return !value.view().dict->items.empty();
    default:
      return true;
  }
}

absl::Status UndefinedUse(const Value& value) {
  const Undefined& undefined = value.undefined();
  return undefined.security ? SecurityFault(undefined.message)
                            : UndefinedFault(undefined.message);
}

}  // namespace nacre::chat
