#include "tokenizer/json_fields.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {

absl::StatusOr<Json> ParseJsonObject(absl::string_view text,
                                     absl::string_view what) {
  Json json = Json::parse(text.begin(), text.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not valid JSON (", text.size(), " bytes)"));
  }
  NACRE_RETURN_IF_ERROR(CheckObject(json, what));
  return json;
}

const Json* FindField(const Json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end() || field->is_null()) return nullptr;
  return &*field;
}

absl::Status TypeError(absl::string_view path, const Json& found,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is ", found.type_name(), ", expected ", expected));
}

absl::Status CheckObject(const Json& value, absl::string_view path) {
  if (value.is_object()) return absl::OkStatus();
  return TypeError(path, value, "an object");
}

absl::StatusOr<std::string> StringField(const Json& object, const char* key,
                                        absl::string_view path) {
  const Json* const field = FindField(object, key);
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".", key, " is missing"));
  }
  if (!field->is_string()) {
    return TypeError(absl::StrCat(path, ".", key), *field, "a string");
  }
  return field->get<std::string>();
}

absl::StatusOr<std::string> StringFieldOr(const Json& object, const char* key,
                                          absl::string_view fallback,
                                          absl::string_view path) {
  if (FindField(object, key) == nullptr) return std::string(fallback);
  return StringField(object, key, path);
}

absl::StatusOr<std::optional<bool>> OptionalBoolField(const Json& object,
                                                      const char* key,
                                                      absl::string_view path) {
  const Json* const field = FindField(object, key);
  if (field == nullptr) return std::optional<bool>();
  if (!field->is_boolean()) {
    return TypeError(absl::StrCat(path, ".", key), *field, "a boolean");
  }
  return std::optional<bool>(field->get<bool>());
}

absl::StatusOr<bool> BoolFieldOr(const Json& object, const char* key,
                                 bool fallback, absl::string_view path) {
  NACRE_ASSIGN_OR_RETURN(const std::optional<bool> value,
                         OptionalBoolField(object, key, path));
  return value.value_or(fallback);
}

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
