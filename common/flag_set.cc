#include "common/flag_set.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre {

FlagSet::FlagSet(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {}

FlagSet::Environment FlagSet::ProcessEnvironment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::string FlagSet::VariableOf(absl::string_view name) {
  return absl::StrCat(
      "NACRE_", absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}})));
}

void FlagSet::AddParsed(absl::string_view name, absl::string_view value_name,
                        absl::string_view default_text, Set set,
                        absl::string_view help) {
  AddFlag(name, value_name, help, std::string(default_text), false,
          std::move(set));
}

void FlagSet::AddSwitch(absl::string_view name, bool* value,
                        absl::string_view help) {
  AddFlag(name, "on|off", help, *value ? "on" : "off", false,
          [value](const std::string& text) -> absl::Status {
            if (text != "on" && text != "off") {
              return absl::InvalidArgumentError("not on or off");
            }
            *value = text == "on";
            return absl::OkStatus();
          });
}

void FlagSet::AddRepeated(absl::string_view name, absl::string_view value_name,
                          std::vector<std::string>* values,
                          absl::string_view help) {
  AddFlag(name, value_name, help, "", false, [values](const std::string& text) {
    values->push_back(text);
    return absl::OkStatus();
  });
}

void FlagSet::AddFlag(absl::string_view name, absl::string_view value_name,
                      absl::string_view help, std::string default_text,
                      bool is_bool, Set set) {
  const std::string full_name = absl::StrCat(prefix_, name);
  NACRE_CHECK(Find(full_name) == nullptr, full_name.c_str());
  if (!prefix_.empty()) default_text.clear();
  flags_.push_back({full_name,
                    std::string(value_name),
                    absl::StrCat(whose_, whose_.empty() ? "" : ": ", help),
                    std::move(default_text),
                    is_bool,
                    std::move(set),
                    group_,
                    prefix_,
                    {}});
}

FlagSet::Flag* FlagSet::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

std::vector<std::string> FlagSet::Given(absl::string_view group) const {
  std::vector<std::string> args;
  for (const Flag& flag : flags_) {
    if (flag.group != group) continue;
    for (const std::string& value : flag.given) {
      args.push_back(
          absl::StrCat("--", flag.name.substr(flag.prefix.size()), "=", value));
    }
  }
  return args;
}

absl::Status FlagSet::Bad(const std::string& problem) const {
  return absl::InvalidArgumentError(
      absl::StrCat(problem, "; see \"", command_, " --help\""));
}

absl::Status FlagSet::BadValue(absl::string_view value_name, bool is_bool,
                               const std::string& error) {
  return absl::InvalidArgumentError(
      absl::StrCat("not ", is_bool ? "true or false" : value_name,
                   error.empty() ? "" : ": ", error));
}

absl::Status FlagSet::SetValue(Flag* flag, const std::string& source,
                               const std::string& value) {
  if (absl::Status status = flag->set(value); !status.ok()) {
    // "x" is not N; "x": there is one already.
    absl::string_view reason = status.message();
    const bool is_not = absl::ConsumePrefix(&reason, "not ");
    return Bad(absl::StrCat(source, ": \"", value,
                            is_not ? "\" is not " : "\": ", reason));
  }
  flag->given.push_back(value);
  return absl::OkStatus();
}

absl::Status FlagSet::ReadEnvironment(const Environment& environment) {
  if (environment == nullptr) return absl::OkStatus();
  for (Flag& flag : flags_) {
    if (!flag.given.empty()) continue;
    const std::string variable = VariableOf(flag.name);
    if (const char* value = environment(variable.c_str())) {
      NACRE_RETURN_IF_ERROR(SetValue(&flag, variable, value));
    }
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Parse(const std::vector<std::string>& args,
                            const Environment& environment) {
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view body(args[i]);
    help_requested_ = body == "-h" || body == "--help";
    version_requested_ = body == "--version";
    if (help_requested_ || version_requested_) return absl::OkStatus();
    if (!absl::ConsumePrefix(&body, "--") || body.empty()) {
      return Bad(absl::StrCat("unexpected argument \"", args[i], "\""));
    }
    const size_t equals = body.find('=');
    const absl::string_view name = body.substr(0, equals);
    Flag* flag = Find(name);
    if (flag == nullptr) {
      return Bad(
          absl::StrCat("unknown flag --", name, " of \"", command_, "\""));
    }
    std::string value = "true";
    if (equals != absl::string_view::npos) {
      value = std::string(body.substr(equals + 1));
    } else if (!flag->is_bool) {
      if (i + 1 == args.size()) {
        return Bad(absl::StrCat("flag --", name, " has no value"));
      }
      value = args[++i];
    }
    NACRE_RETURN_IF_ERROR(SetValue(flag, absl::StrCat("flag --", name), value));
  }
  return ReadEnvironment(environment);
}

std::string FlagSet::Help() const {
  std::string text =
      absl::StrCat("Usage: ", command_, " [flags]\n\n", summary_, "\n\n");
  for (const Flag& flag : flags_) {
    std::string head = absl::StrCat("  --", flag.name);
    if (!flag.is_bool) absl::StrAppend(&head, " ", flag.value_name);
    if (head.size() < 30) head.resize(30, ' ');
    absl::StrAppend(&text, head, "  ", flag.help);
    if (!flag.is_bool && !flag.default_text.empty()) {
      absl::StrAppend(&text, " (default ", flag.default_text, ")");
    }
    absl::StrAppend(&text, "\n");
  }
  if (!flags_.empty()) {
    absl::StrAppend(&text, "\nWithout --", flags_.front().name,
                    " the variable ", VariableOf(flags_.front().name),
                    " of the environment counts, and so on.\n");
  }
  return text;
}

}  // namespace nacre
