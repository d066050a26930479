// The "post_processor" of a tokenizer.json, as far as it adds tokens around one
// text. Plain data.

#ifndef TOKENIZER_POST_PROCESSOR_H_
#define TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/json_fields.h"

namespace nacre::tokenizer {

struct PostProcessor {
  std::vector<int32_t> prefix;  // ids before the text, usually BOS
  std::vector<int32_t> suffix;  // ids after it
  bool has_template = false;

  // `json` is the field's value, or nullptr. Knows Sequence, TemplateProcessing
  // (its "single" template) and ByteLevel, which adds nothing. UNIMPLEMENTED:
  // another type, a second template, or one that does not hold the text
  // exactly once. INVALID_ARGUMENT: it adds more than kMaxAdded ids.
  static constexpr size_t kMaxAdded = 1024;
  static absl::StatusOr<PostProcessor> Parse(const Json* json);

 private:
  absl::Status Add(const Json& json, const std::string& type,
                   const std::string& path);
  absl::Status AddTemplate(const Json& json, const std::string& path);
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_POST_PROCESSOR_H_
