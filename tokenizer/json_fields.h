// What the fields of tokenizer files have in common, beside
// common/json_fields.h: errors name the path of the field and what was found
// there.

#ifndef TOKENIZER_JSON_FIELDS_H_
#define TOKENIZER_JSON_FIELDS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json_fields.h"

namespace nacre::tokenizer {

// Calls `take` for each component of `json` with its type and path, in order.
// A "Sequence" has an array `parts` of components, sequences among them; these
// are limited to a depth of kMaxSequenceDepth, and what is no sequence to a
// number of kMaxSteps: each takes a text further. Returns the first error.
inline constexpr int kMaxSequenceDepth = 16;
inline constexpr size_t kMaxSteps = 64;
absl::Status ForEachComponent(
    const Json& json, const char* parts, const std::string& path,
    absl::FunctionRef<absl::Status(const Json& component,
                                   const std::string& type,
                                   const std::string& path)>
        take);

// UNIMPLEMENTED "PATH has type 'X', which is not supported".
absl::Status UnsupportedType(absl::string_view path, absl::string_view type);

// What stands for spaces (one character), and when a text gets one in front
// ("always", "first", "never"; not checked).
struct MetaspaceFields {
  std::string replacement;
  std::string prepend_scheme;
};
absl::StatusOr<MetaspaceFields> ParseMetaspaceFields(const Json& object,
                                                     absl::string_view path);

// A token id: an integer from 0 to kMaxVocabularySize - 1.
absl::StatusOr<int32_t> TokenId(const Json& value, absl::string_view path);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_JSON_FIELDS_H_
