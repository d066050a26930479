// Reads prompts: one JSON object a line with `prompt` (a string). It may have
// `id` (a string or a whole number) and `max_tokens` (a whole number > 0).
// Other keys are left alone, empty lines are skipped.

#ifndef TOOLS_GENERATE_PROMPTS_FILE_H_
#define TOOLS_GENERATE_PROMPTS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::tools {

struct Prompt {
  std::string id;  // the line's number where the file has none
  std::string text;
  std::optional<uint32_t> max_tokens;
};

// `name` stands for the source in errors. INVALID_ARGUMENT, with the line: not
// a JSON object, a key of the wrong type; no prompt in the whole text.
absl::StatusOr<std::vector<Prompt>> ParsePrompts(absl::string_view name,
                                                 absl::string_view content);

}  // namespace nacre::tools

#endif  // TOOLS_GENERATE_PROMPTS_FILE_H_
