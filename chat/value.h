// The values of a template: Python's, as far as a template can make them.
// A Value is a small handle. The objects behind it belong to the render's heap
// (render_context.h) or, for constants, to the program; both outlive all
// values.
//
// Used by one thread at a time; objects of a program are never changed.

#ifndef CHAT_VALUE_H_
#define CHAT_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/text.h"

namespace nacre::chat {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDict,
  kView,       // what keys(), values() and items() of a dict give
  kIterator,   // what map, select and the like give: read once
  kNamespace,  // the one thing that a template can change
  kFunction,
  kLoop,
};

struct Undefined;
struct List;
struct Dict;
struct View;
struct Iterator;
struct Namespace;
struct Function;
struct Loop;

class Value {
 public:
  Value() : kind_(Kind::kNone), int_(0) {}
  explicit Value(bool value) : kind_(Kind::kBool), int_(value) {}
  explicit Value(int64_t value) : kind_(Kind::kInt), int_(value) {}
  explicit Value(double value) : kind_(Kind::kFloat), float_(value) {}
  explicit Value(const Text* text) : kind_(Kind::kString), object_(text) {}
  // An object whose type is of one kind: its kKind.
  template <typename T>
  explicit Value(T* object) : kind_(T::kKind), object_(object) {}
  // kList, kTuple or kRange.
  Value(Kind kind, const List* list);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  // Of which Python's bool is one.
  bool is_integer() const {
    return kind_ == Kind::kInt || kind_ == Kind::kBool;
  }
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }
  // Has `list()`.
  bool is_list_like() const {
    return kind_ == Kind::kList || kind_ == Kind::kTuple ||
           kind_ == Kind::kRange;
  }

  int64_t integer() const { return int_; }  // kInt and kBool
  double real() const {                     // of any number
    return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_);
  }
  const Text& text() const { return *static_cast<const Text*>(object_); }
  const Undefined& undefined() const;
  const List& list() const;
  const Dict& dict() const;
  const View& view() const;
  Iterator& iterator() const;
  Namespace& space() const;
  const Function& function() const;
  Loop& loop() const;
  // Which object it is, for `is sameas`.
  const Object* object() const { return object_; }

 private:
  Value(Kind kind, const Object* object) : kind_(kind), object_(object) {}

  Kind kind_;
  union {
    // Members of the class, and named so.
    // NOLINTBEGIN(readability-identifier-naming)
    int64_t int_;
    double float_;
    const Object* object_;
    // NOLINTEND(readability-identifier-naming)
  };
};

struct Undefined : Object {
  static constexpr Kind kKind = Kind::kUndefined;

  std::string message;    // what an error says: "'x' is undefined"
  bool security = false;  // the sandbox hides it
};

struct List : Object {
  std::vector<Value> items;
};

// range(start, stop, step) with its items.
struct Range : List {
  int64_t start = 0, stop = 0, step = 1;
};

// In order of insertion.
struct Dict : Object {
  static constexpr Kind kKind = Kind::kDict;

  std::vector<std::pair<Value, Value>> items;
  absl::flat_hash_map<std::string, size_t> index;  // by DictKey

  // Nullptr: there is none. `key` is a DictKey.
  const Value* Find(const std::string& key) const;
  const Value* FindName(std::string_view name) const;
  void Set(const std::string& key, Value name, Value value);
};

struct View : Object {
  static constexpr Kind kKind = Kind::kView;

  enum class What { kKeys, kValues, kItems };
  const Dict* dict = nullptr;
  What what = What::kKeys;
};

struct Iterator : Object {
  static constexpr Kind kKind = Kind::kIterator;

  std::vector<Value> items;
  size_t next = 0;
  // Python computes the items when they are read: what fails then.
  absl::Status error;
};

struct Namespace : Object {
  static constexpr Kind kKind = Kind::kNamespace;

  Dict attributes;
};

struct MacroNode;
struct Scope;

// Something to call: a function of the environment, a method of a value, or a
// macro.
struct Function : Object {
  static constexpr Kind kKind = Kind::kFunction;

  enum class What { kGlobal, kMethod, kLoopMethod, kMacro };
  What what = What::kGlobal;
  std::string name;
  Value self;                        // kMethod, kLoopMethod
  const MacroNode* macro = nullptr;  // kMacro
  Scope* closure = nullptr;
};

// Equal for keys that Python finds equal: 1, 1.0 and True. TypeError: lists and
// dicts are no keys.
absl::StatusOr<std::string> DictKey(const Value& value);
std::string DictKeyOfName(std::string_view name);

// The name of Python's type: "str", "NoneType".
std::string_view TypeName(const Value& value);

// Python's bool(). Never fails.
bool Truth(const Value& value);

// What an operation on an undefined value ends in.
absl::Status UndefinedUse(const Value& value);

}  // namespace nacre::chat

#endif  // CHAT_VALUE_H_
