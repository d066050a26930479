#include "tools/generate/prompts_file.h"

#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

absl::StatusOr<Prompt> ParsePrompt(absl::string_view line) {
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(line));
  Prompt prompt;
  const auto text = json.find("prompt");
  if (text == json.end() || !text->is_string()) {
    return absl::InvalidArgumentError("\"prompt\" is missing or not a string");
  }
  prompt.text = text->get<std::string>();
  if (const auto id = json.find("id"); id != json.end()) {
    if (!id->is_string() && !id->is_number_integer()) {
      return absl::InvalidArgumentError(
          "\"id\" is neither a string nor a whole number");
    }
    prompt.id = id->is_string() ? id->get<std::string>() : id->dump();
  }
  if (const auto max = json.find("max_tokens"); max != json.end()) {
    if (!max->is_number_unsigned() || *max == 0 ||
        *max > std::numeric_limits<uint32_t>::max()) {
      return BadField("max_tokens", *max, "a whole number > 0");
    }
    prompt.max_tokens = max->get<uint32_t>();
  }
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<Prompt>> ParsePrompts(absl::string_view name,
                                                 absl::string_view content) {
  std::vector<Prompt> prompts;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<Prompt> prompt = ParsePrompt(line);
    if (!prompt.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ":", line_number, ": ", prompt.status().message()));
    }
    if (prompt->id.empty()) prompt->id = absl::StrCat(line_number);
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has no prompt"));
  }
  return prompts;
}

}  // namespace nacre::tools
