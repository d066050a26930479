// The flags of one sub-command of `nacre`. Abseil's own flags are one set for
// the whole program and cannot have dashes in their names; here every
// sub-command has its own set, so that another command's flags are refused.
// The conversion of values is Abseil's (absl::ParseFlag).
//
// Not thread-safe; borrows the variables that it fills.

#ifndef TOOLS_FLAG_SET_H_
#define TOOLS_FLAG_SET_H_

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nacre::tools {

class FlagSet {
 public:
  // `command`: as typed, "nacre generate". `summary`: one sentence.
  FlagSet(std::string command, std::string summary);

  // `--name VALUE` or `--name=VALUE`. *value holds the default. A bool flag
  // takes its value only after '='; alone it means true. `value_name` stands
  // for the value in the help.
  template <typename T>
  void Add(absl::string_view name, absl::string_view value_name, T* value,
           absl::string_view help) {
    AddFlag({std::string(name), std::string(value_name), std::string(help),
             absl::UnparseFlag(*value), std::is_same_v<T, bool>,
             [value](absl::string_view text, std::string* error) {
               return absl::ParseFlag(text, value, error);
             }});
  }

  // A flag without a default. (Abseil would take an empty text as "unset", but
  // an empty prompt is one.)
  template <typename T>
  void Add(absl::string_view name, absl::string_view value_name,
           std::optional<T>* value, absl::string_view help) {
    AddFlag({std::string(name), std::string(value_name), std::string(help), "",
             false, [value](absl::string_view text, std::string* error) {
               return absl::ParseFlag(text, &value->emplace(), error);
             }});
  }

  // A flag that may be given several times; each adds one value.
  void AddRepeated(absl::string_view name, absl::string_view value_name,
                   std::vector<std::string>* values, absl::string_view help);

  // Fills the variables. INVALID_ARGUMENT: an unknown flag, a missing or bad
  // value, an argument that is no flag. Stops at --help.
  absl::Status Parse(const std::vector<std::string>& args);

  bool help_requested() const { return help_requested_; }
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string value_name;
    std::string help;
    std::string default_text;
    bool is_bool;
    std::function<bool(absl::string_view text, std::string* error)> set;
  };

  void AddFlag(Flag flag);
  const Flag* Find(absl::string_view name) const;
  absl::Status Bad(const std::string& problem) const;

  const std::string command_;
  const std::string summary_;
  std::vector<Flag> flags_;
  bool help_requested_ = false;
};

}  // namespace nacre::tools

#endif  // TOOLS_FLAG_SET_H_
