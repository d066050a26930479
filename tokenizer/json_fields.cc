#include "tokenizer/json_fields.h"

#include "absl/strings/str_cat.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {

absl::StatusOr<const Json*> SequenceField(const Json& object, const char* key,
                                          absl::string_view path, int depth) {
  if (depth >= kMaxSequenceDepth) {
    return absl::InvalidArgumentError(absl::StrCat(
        path.substr(0, 64), "... has sequences nested deeper than ",
        kMaxSequenceDepth));
  }
  const Json* const field = FindField(object, key);
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".", key, " is missing"));
  }
  if (!field->is_array()) {
    return TypeError(absl::StrCat(path, ".", key), *field, "an array");
  }
  return field;
}

absl::Status UnsupportedType(absl::string_view path, absl::string_view type) {
  return absl::UnimplementedError(absl::StrCat(
      path, " has type '", type.substr(0, 64), "', which is not supported"));
}

absl::StatusOr<int32_t> TokenId(const Json& value, absl::string_view path) {
  if (!value.is_number_unsigned()) {
    return TypeError(path, value, "a token id (an integer, 0 or more)");
  }
  const uint64_t id = value.get<uint64_t>();
  if (id >= static_cast<uint64_t>(kMaxVocabularySize)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is token id ", id, ", the limit is ", kMaxVocabularySize - 1));
  }
  return static_cast<int32_t>(id);
}

}  // namespace nacre::tokenizer
