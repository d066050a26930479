#include "tokenizer/post_processor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::tokenizer {
namespace {

// Appends the ids of the special token `name` of a template.
absl::Status AppendSpecialToken(const Json& json, const std::string& path,
                                const std::string& name,
                                std::vector<int32_t>* ids) {
  const std::string token_path =
      absl::StrCat(path, ".special_tokens['", name.substr(0, 64), "'].ids");
  const Json* const tokens = FindField(json, "special_tokens");
  const Json* const token = tokens != nullptr && tokens->is_object()
                                ? FindField(*tokens, name.c_str())
                                : nullptr;
  const Json* const list = token != nullptr && token->is_object()
                               ? FindField(*token, "ids")
                               : nullptr;
  if (list == nullptr || !list->is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(token_path, " is missing or no array"));
  }
  for (const Json& value : *list) {
    NACRE_ASSIGN_OR_RETURN(const int32_t id, TokenId(value, token_path));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::Parse(const Json* json) {
  PostProcessor result;
  if (json != nullptr) {
    NACRE_RETURN_IF_ERROR(ForEachComponent(
        *json, "processors", "post_processor",
        [&result](const Json& component, const std::string& type,
                  const std::string& path) {
          return result.Add(component, type, path);
        }));
  }
  return result;
}

absl::Status PostProcessor::Add(const Json& json, const std::string& type,
                                const std::string& path) {
  // ByteLevel only moves offsets, which are not kept here.
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return AddTemplate(json, path);
  return UnsupportedType(path, type);
}

absl::Status PostProcessor::AddTemplate(const Json& json,
                                        const std::string& path) {
  // The library gives a second one the first one's result as a pair of texts.
  if (has_template) {
    return absl::UnimplementedError(absl::StrCat(
        path, " is a second TemplateProcessing, which is not supported"));
  }
  has_template = true;
  const Json* const single = FindField(json, "single");
  if (single == nullptr || !single->is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".single is missing or no array"));
  }
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int texts = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    const std::string item_path = absl::StrCat(path, ".single[", i, "]");
    const Json& item = (*single)[i];
    NACRE_RETURN_IF_ERROR(CheckObject(item, item_path));
    if (FindField(item, "Sequence") != nullptr) {
      ++texts;
      continue;
    }
    const Json* const special = FindField(item, "SpecialToken");
    if (special == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(item_path, " is neither a Sequence nor a SpecialToken"));
    }
    NACRE_RETURN_IF_ERROR(CheckObject(*special, item_path));
    NACRE_ASSIGN_OR_RETURN(const std::string name,
                           StringField(*special, "id", item_path));
    NACRE_RETURN_IF_ERROR(
        AppendSpecialToken(json, path, name, texts == 0 ? &before : &after));
    if (const size_t added = before.size() + after.size(); added > kMaxAdded) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ".single adds ", added,
                       " tokens or more, the limit is ", kMaxAdded));
    }
  }
  if (texts != 1) {
    return absl::UnimplementedError(
        absl::StrCat(path, ".single holds the text ", texts,
                     " times, only once is supported"));
  }
  prefix = std::move(before);
  suffix = std::move(after);
  return absl::OkStatus();
}

}  // namespace nacre::tokenizer
