#include "tokenizer/json_fields.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {
namespace {

using TakeComponent = absl::FunctionRef<absl::Status(
    const Json& component, const std::string& type, const std::string& path)>;

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

// Components that are no sequences. Of what is malformed any number: it is
// refused later.
size_t CountSteps(const Json& json, const char* parts, int depth) {
  if (!json.is_object()) return 1;
  const Json* const type = FindField(json, "type");
  const Json* const inner = FindField(json, parts);
  if (type == nullptr || *type != "Sequence" || inner == nullptr ||
      !inner->is_array() || depth >= kMaxSequenceDepth) {
    return 1;
  }
  size_t count = 0;
  for (const Json& part : *inner) count += CountSteps(part, parts, depth + 1);
  return count;
}

absl::Status TakeComponents(const Json& json, const char* parts,
                            const std::string& path, int depth,
                            TakeComponent take) {
  NACRE_RETURN_IF_ERROR(CheckObject(json, path));
  NACRE_ASSIGN_OR_RETURN(const std::string type,
                         StringField(json, "type", path));
  if (type != "Sequence") return take(json, type, path);
  NACRE_ASSIGN_OR_RETURN(const Json* inner,
                         SequenceField(json, parts, path, depth));
  for (size_t i = 0; i < inner->size(); ++i) {
    NACRE_RETURN_IF_ERROR(TakeComponents(
        (*inner)[i], parts, absl::StrCat(path, "[", i, "]"), depth + 1, take));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ForEachComponent(const Json& json, const char* parts,
                              const std::string& path, TakeComponent take) {
  const size_t count = CountSteps(json, parts, 0);
  if (count > kMaxSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", count, " steps, the limit is ", kMaxSteps));
  }
  return TakeComponents(json, parts, path, 0, take);
}

absl::Status UnsupportedType(absl::string_view path, absl::string_view type) {
  return absl::UnimplementedError(absl::StrCat(
      path, " has type '", type.substr(0, 64), "', which is not supported"));
}

absl::StatusOr<MetaspaceFields> ParseMetaspaceFields(const Json& object,
                                                     absl::string_view path) {
  MetaspaceFields fields;
  NACRE_ASSIGN_OR_RETURN(fields.replacement,
                         StringField(object, "replacement", path));
  if (fields.replacement.empty() ||
      ScanUtf8(fields.replacement).size != fields.replacement.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ".replacement '", CutUtf8(fields.replacement, 64), "' of ",
        fields.replacement.size(), " bytes is not one character"));
  }
  // Older files have add_prefix_space instead.
  NACRE_ASSIGN_OR_RETURN(const bool add_prefix_space,
                         BoolFieldOr(object, "add_prefix_space", true, path));
  NACRE_ASSIGN_OR_RETURN(
      fields.prepend_scheme,
      StringFieldOr(object, "prepend_scheme",
                    add_prefix_space ? "always" : "never", path));
  return fields;
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
