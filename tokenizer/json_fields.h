// What the fields of tokenizer files have in common, beside
// common/json_fields.h: errors name the path of the field and what was found
// there.

#ifndef TOKENIZER_JSON_FIELDS_H_
#define TOKENIZER_JSON_FIELDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json_fields.h"

namespace nacre::tokenizer {

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
