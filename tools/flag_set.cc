#include "tools/flag_set.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/check.h"

namespace nacre::tools {

FlagSet::FlagSet(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {}

void FlagSet::AddRepeated(absl::string_view name, absl::string_view value_name,
                          std::vector<std::string>* values,
                          absl::string_view help) {
  AddFlag({std::string(name), std::string(value_name), std::string(help), "",
           false, [values](absl::string_view text, std::string*) {
             values->emplace_back(text);
             return true;
           }});
}

void FlagSet::AddFlag(Flag flag) {
  NACRE_CHECK(Find(flag.name) == nullptr, flag.name.c_str());
  flags_.push_back(std::move(flag));
}

const FlagSet::Flag* FlagSet::Find(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

absl::Status FlagSet::Bad(const std::string& problem) const {
  return absl::InvalidArgumentError(
      absl::StrCat(problem, "; see \"", command_, " --help\""));
}

absl::Status FlagSet::Parse(const std::vector<std::string>& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view body(args[i]);
    if (body == "-h" || body == "--help") {
      help_requested_ = true;
      return absl::OkStatus();
    }
    if (!absl::ConsumePrefix(&body, "--") || body.empty()) {
      return Bad(absl::StrCat("unexpected argument \"", args[i], "\""));
    }
    const size_t equals = body.find('=');
    const absl::string_view name = body.substr(0, equals);
    const Flag* flag = Find(name);
    if (flag == nullptr) {
      return Bad(
          absl::StrCat("unknown flag --", name, " of \"", command_, "\""));
    }
    absl::string_view value;
    if (equals != absl::string_view::npos) {
      value = body.substr(equals + 1);
    } else if (flag->is_bool) {
      value = "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return Bad(absl::StrCat("flag --", name, " has no value"));
    }
    std::string error;
    if (!flag->set(value, &error)) {
      return Bad(
          absl::StrCat("flag --", name, ": \"", value, "\" is not ",
                       flag->is_bool ? "true or false" : flag->value_name,
                       error.empty() ? "" : ": ", error));
    }
  }
  return absl::OkStatus();
}

std::string FlagSet::Help() const {
  std::string text = absl::StrCat(command_, " [flags]\n", summary_, "\n\n");
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
  return text;
}

}  // namespace nacre::tools
