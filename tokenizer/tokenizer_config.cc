#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {
namespace {

constexpr char kPath[] = "tokenizer_config";

// "bos_token": "<s>" or {"content": "<s>", ...} or null.
absl::StatusOr<NamedToken> ReadNamedToken(const Json& config, const char* key) {
  NamedToken token;
  const auto field = config.find(key);
  if (field == config.end()) return token;
  token.mentioned = true;
  if (field->is_null()) return token;
  const std::string path = absl::StrCat(kPath, ".", key);
  if (field->is_string()) {
    token.content = field->get<std::string>();
  } else if (field->is_object()) {
    NACRE_ASSIGN_OR_RETURN(token.content, StringField(*field, "content", path));
  } else {
    return TypeError(path, *field, "a string or an object");
  }
  return token;
}

// A name for a message.
std::string InOneLine(absl::string_view name) {
  return absl::Utf8SafeCHexEscape(CutUtf8(name, 64));
}

void SortById(std::vector<AddedToken>* tokens) {
  std::stable_sort(
      tokens->begin(), tokens->end(),
      [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

// One of a list: its name, or an object with flags.
absl::Status AddListed(const Json& value, std::string path,
                       TokenizerConfig* config) {
  AddedToken token;
  if (value.is_object()) {
    NACRE_ASSIGN_OR_RETURN(token, ParseAddedToken(value, path));
    NACRE_ASSIGN_OR_RETURN(token.normalized,
                           BoolFieldOr(value, "normalized", false, path));
  } else if (value.is_string()) {
    token.content = value.get<std::string>();
    // `transformers` adds none either.
    if (token.content.empty()) return absl::OkStatus();
    NACRE_RETURN_IF_ERROR(CheckTokenSize(token.content, path));
  } else {
    return TypeError(path, value, "a string or an object");
  }
  token.id = -1;
  token.special = true;
  token.path = std::move(path);
  config->listed_tokens.push_back(std::move(token));
  return absl::OkStatus();
}

// `text` is that of `json`: the names of an object have ids in its order.
absl::Status AddLists(const Json& json, absl::string_view text,
                      absl::string_view file, TokenizerConfig* config) {
  for (const char* key :
       {"extra_special_tokens", "additional_special_tokens"}) {
    const Json* const list = FindField(json, key);
    if (list == nullptr) continue;
    const std::string path = absl::StrCat(file, ".", key);
    if (list->is_object()) {
      for (const std::string& name : KeysInOrder(text, key)) {
        const auto value = list->find(name);
        if (value == list->end()) continue;
        NACRE_RETURN_IF_ERROR(AddListed(
            *value, absl::StrCat(path, ".", InOneLine(name)), config));
      }
      continue;
    }
    if (!list->is_array()) return TypeError(path, *list, "an array");
    for (size_t i = 0; i < list->size(); ++i) {
      NACRE_RETURN_IF_ERROR(
          AddListed((*list)[i], absl::StrCat(path, "[", i, "]"), config));
    }
  }
  return absl::OkStatus();
}

// Fields of other types are none: "add_bos_token" is a boolean.
void AddNamedFields(const Json& json, absl::string_view file,
                    TokenizerConfig* config) {
  for (const auto& [key, value] : json.items()) {
    if (!absl::EndsWith(key, "_token")) continue;
    const Json* content = &value;
    if (value.is_object()) content = FindField(value, "content");
    if (content == nullptr || !content->is_string()) continue;
    config->named_fields.push_back(
        {absl::StrCat(file, ".", InOneLine(key)), content->get<std::string>()});
  }
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(absl::string_view text) {
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, kPath));
  TokenizerConfig config;
  NACRE_ASSIGN_OR_RETURN(config.add_bos_token,
                         OptionalBoolField(json, "add_bos_token", kPath));
  NACRE_ASSIGN_OR_RETURN(config.add_eos_token,
                         OptionalBoolField(json, "add_eos_token", kPath));
  NACRE_ASSIGN_OR_RETURN(config.bos_token, ReadNamedToken(json, "bos_token"));
  NACRE_ASSIGN_OR_RETURN(config.eos_token, ReadNamedToken(json, "eos_token"));
  NACRE_ASSIGN_OR_RETURN(config.legacy,
                         BoolFieldOr(json, "legacy", true, kPath));
  if (const Json* added = FindField(json, "added_tokens_decoder")) {
    config.has_decoder = true;
    const std::string path = absl::StrCat(kPath, ".added_tokens_decoder");
    NACRE_RETURN_IF_ERROR(CheckObject(*added, path));
    for (const auto& [key, value] : added->items()) {
      const std::string entry = absl::StrCat(path, ".", key);
      int32_t id;
      if (!absl::SimpleAtoi(key, &id) || id < 0 || id >= kMaxVocabularySize) {
        return absl::InvalidArgumentError(absl::StrCat(
            entry, ": the key is no token id below ", kMaxVocabularySize));
      }
      NACRE_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(value, entry));
      token.id = id;
      token.path = entry;
      config.added_tokens.push_back(std::move(token));
    }
    SortById(&config.added_tokens);
  }
  NACRE_RETURN_IF_ERROR(AddLists(json, text, kPath, &config));
  AddNamedFields(json, kPath, &config);
  return config;
}

absl::flat_hash_set<std::string> SpecialNames(const TokenizerConfig& config) {
  absl::flat_hash_set<std::string> names;
  for (const NamedField& field : config.named_fields) {
    names.insert(field.content);
  }
  for (const AddedToken& token : config.listed_tokens) {
    names.insert(token.content);
  }
  return names;
}

absl::Status AddSpecialTokensMap(absl::string_view text,
                                 TokenizerConfig* config) {
  constexpr char kMap[] = "special_tokens_map";
  if (config->has_decoder) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, kMap));
  NACRE_RETURN_IF_ERROR(AddLists(json, text, kMap, config));
  AddNamedFields(json, kMap, config);
  return absl::OkStatus();
}

absl::Status AddAddedTokensFile(absl::string_view text,
                                TokenizerConfig* config) {
  constexpr char kFile[] = "added_tokens";
  if (config->has_decoder) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, kFile));
  const absl::flat_hash_set<std::string> special = SpecialNames(*config);
  for (const auto& [content, id] : json.items()) {
    AddedToken token;
    token.path = absl::StrCat(kFile, ".", InOneLine(content));
    NACRE_RETURN_IF_ERROR(CheckTokenSize(content, token.path));
    NACRE_ASSIGN_OR_RETURN(token.id, TokenId(id, token.path));
    token.content = content;
    token.special = special.contains(content);
    token.normalized = !token.special;
    config->added_tokens.push_back(std::move(token));
  }
  SortById(&config->added_tokens);
  return absl::OkStatus();
}

}  // namespace nacre::tokenizer
