// The flags of one program, or of one sub-command of `nacre`: every program of
// ours reads its command line with this. Abseil's own flags are one set for the
// whole program and cannot have dashes in their names. The conversion of values
// is Abseil's (absl::ParseFlag).
//
// A flag that is not given may stand in the environment: --max-queue as
// NACRE_MAX_QUEUE. What several programs understand is a struct of variables
// with a Register(FlagSet*) of its own.
//
// Not thread-safe; borrows the variables that it fills.

#ifndef COMMON_FLAG_SET_H_
#define COMMON_FLAG_SET_H_

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace nacre {

class FlagSet {
 public:
  // The value of a variable of the environment, null where it is not set.
  using Environment = std::function<const char*(const char* name)>;

  // `command`: as typed, "nacre generate". `summary`: one sentence.
  FlagSet(std::string command, std::string summary);

  // `--name VALUE` or `--name=VALUE`. *value holds the default. A bool flag
  // takes its value only after '='; alone it means true. `value_name` stands
  // for the value in the help.
  template <typename T>
  void Add(absl::string_view name, absl::string_view value_name, T* value,
           absl::string_view help) {
    AddFlag(name, value_name, help, absl::UnparseFlag<T>(*value),
            std::is_same_v<T, bool>, Setter(value_name, value));
  }

  // Flags without a default. (Abseil would take an empty text as "unset", but
  // an empty prompt is one.)
  template <typename T>
  void Add(absl::string_view name, absl::string_view value_name,
           std::optional<T>* value, absl::string_view help) {
    AddOptional(name, value_name, value, help);
  }
  template <typename T>
  void Add(absl::string_view name, absl::string_view value_name,
           absl::optional<T>* value, absl::string_view help) {
    AddOptional(name, value_name, value, help);
  }

  // A flag whose value `set` reads: its error says what the value is not, as in
  // "not a list of cores". `default_text`: for the help, may be empty.
  using Set = std::function<absl::Status(const std::string& text)>;
  void AddParsed(absl::string_view name, absl::string_view value_name,
                 absl::string_view default_text, Set set,
                 absl::string_view help);

  // "on" or "off".
  void AddSwitch(absl::string_view name, bool* value, absl::string_view help);

  // A flag that may be given several times; each adds one value. The
  // environment has one value.
  void AddRepeated(absl::string_view name, absl::string_view value_name,
                   std::vector<std::string>* values, absl::string_view help);

  // The flags that are added from here on belong to `group`, until the next.
  // With a prefix, as "draft-", they are the same flags for another program.
  // Their names begin with it, their help with `whose`; no default is named.
  void BeginGroup(std::string group, std::string prefix = "",
                  std::string whose = "") {
    group_ = std::move(group);
    prefix_ = std::move(prefix);
    whose_ = std::move(whose);
  }
  // Those of a group that were given, in the environment or in the arguments,
  // in the order that they were added. Each is "--name=value", without its
  // prefix, for a program that has the same group.
  std::vector<std::string> Given(absl::string_view group) const;

  // Fills the variables from `args`, then those that were not given from the
  // environment (null: none). INVALID_ARGUMENT: an unknown flag, a missing or
  // bad value, an argument that is no flag. Stops at --help and --version.
  absl::Status Parse(const std::vector<std::string>& args,
                     const Environment& environment = ProcessEnvironment());

  bool help_requested() const { return help_requested_; }
  bool version_requested() const { return version_requested_; }
  std::string Help() const;

  // That of the process.
  static Environment ProcessEnvironment();
  // As in NACRE_MAX_QUEUE, of "max-queue".
  static std::string VariableOf(absl::string_view name);

 private:
  struct Flag {
    std::string name;
    std::string value_name;
    std::string help;
    std::string default_text;
    bool is_bool;
    Set set;
    std::string group;
    std::string prefix;  // of its name
    std::vector<std::string> given;
  };

  static absl::Status BadValue(absl::string_view value_name, bool is_bool,
                               const std::string& error);
  // What reads a text with absl::ParseFlag.
  template <typename T>
  static Set Setter(absl::string_view value_name, T* value) {
    return [value, value_name = std::string(value_name)](
               const std::string& text) -> absl::Status {
      std::string error;
      if (absl::ParseFlag<T>(text, value, &error)) return absl::OkStatus();
      return BadValue(value_name, std::is_same_v<T, bool>, error);
    };
  }
  template <typename Optional>
  void AddOptional(absl::string_view name, absl::string_view value_name,
                   Optional* value, absl::string_view help) {
    AddFlag(name, value_name, help, "", false,
            [value, value_name = std::string(value_name)](
                const std::string& text) -> absl::Status {
              return Setter(value_name, &value->emplace())(text);
            });
  }

  void AddFlag(absl::string_view name, absl::string_view value_name,
               absl::string_view help, std::string default_text, bool is_bool,
               Set set);
  Flag* Find(absl::string_view name);
  // `source`: "flag --name" or the variable.
  absl::Status SetValue(Flag* flag, const std::string& source,
                        const std::string& value);
  absl::Status ReadEnvironment(const Environment& environment);
  absl::Status Bad(const std::string& problem) const;

  const std::string command_;
  const std::string summary_;
  std::string group_;
  std::string prefix_;
  std::string whose_;
  std::vector<Flag> flags_;
  bool help_requested_ = false;
  bool version_requested_ = false;
};

}  // namespace nacre

#endif  // COMMON_FLAG_SET_H_
