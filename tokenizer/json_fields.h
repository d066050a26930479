// Typed access to the fields of a JSON object. Every error is INVALID_ARGUMENT
// and names the path of the field and what was found there.

#ifndef TOKENIZER_JSON_FIELDS_H_
#define TOKENIZER_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace nacre::tokenizer {

using Json = nlohmann::json;

// Parses `text`, which must be one JSON object. `what` names it in errors.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text,
                                     absl::string_view what);

// The field, or nullptr when it is absent or null. `object` must be an object.
const Json* FindField(const Json& object, const char* key);

// "PATH is a number, expected a string".
absl::Status TypeError(absl::string_view path, const Json& found,
                       absl::string_view expected);

// An error unless `value` is an object.
absl::Status CheckObject(const Json& value, absl::string_view path);

// A required string; also "type" of components.
absl::StatusOr<std::string> StringField(const Json& object, const char* key,
                                        absl::string_view path);
// Optional fields: absent and null give the fallback.
absl::StatusOr<std::string> StringFieldOr(const Json& object, const char* key,
                                          absl::string_view fallback,
                                          absl::string_view path);
absl::StatusOr<bool> BoolFieldOr(const Json& object, const char* key,
                                 bool fallback, absl::string_view path);
absl::StatusOr<std::optional<bool>> OptionalBoolField(const Json& object,
                                                      const char* key,
                                                      absl::string_view path);

// The array of parts of a "Sequence" component. Sequences inside sequences are
// limited to a depth of kMaxSequenceDepth.
inline constexpr int kMaxSequenceDepth = 16;
absl::StatusOr<const Json*> SequenceField(const Json& object, const char* key,
                                          absl::string_view path, int depth);

// UNIMPLEMENTED "PATH has type 'X', which is not supported".
absl::Status UnsupportedType(absl::string_view path, absl::string_view type);

// A token id: an integer from 0 to kMaxVocabularySize - 1.
absl::StatusOr<int32_t> TokenId(const Json& value, absl::string_view path);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_JSON_FIELDS_H_
