// The arguments of a call, and their names.
//
// Plain data and pure functions.

#ifndef CHAT_ARGUMENTS_H_
#define CHAT_ARGUMENTS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "chat/errors.h"
#include "chat/value.h"

namespace nacre::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  bool empty() const { return positional.empty() && named.empty(); }
  // Removes and returns the named argument, if it is there.
  std::optional<Value> TakeNamed(std::string_view name) {
    for (auto it = named.begin(); it != named.end(); ++it) {
      if (it->first != name) continue;
      const Value value = it->second;
      named.erase(it);
      return value;
    }
    return std::nullopt;
  }
};

// The arguments in the order of the parameters; nullopt: not given.
using Bound = std::vector<std::optional<Value>>;

// TypeError: too many arguments, one twice, one with an unknown name, or one of
// the first `required` is missing.
inline absl::StatusOr<Bound> Bind(std::string_view function,
                                  const Arguments& arguments,
                                  std::initializer_list<std::string_view> names,
                                  size_t required = 0) {
  if (arguments.positional.size() > names.size()) {
    return TypeFault(function, " takes at most ", names.size(),
                     " arguments, found ", arguments.positional.size());
  }
  Bound bound(names.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound[i] = arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    size_t at = 0;
    while (at < names.size() && *(names.begin() + at) != name) ++at;
    if (at == names.size()) {
      return TypeFault(function, " has no argument '", name, "'");
    }
    if (bound[at].has_value()) {
      return TypeFault(function, " got the argument '", name, "' twice");
    }
    bound[at] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      return TypeFault(function, " lacks the argument '", *(names.begin() + i),
                       "'");
    }
  }
  return bound;
}

}  // namespace nacre::chat

#endif  // CHAT_ARGUMENTS_H_
