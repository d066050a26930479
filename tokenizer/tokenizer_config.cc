#include "tokenizer/tokenizer_config.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/json_fields.h"
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
      config.added_tokens.push_back(std::move(token));
    }
  }
  return config;
}

}  // namespace nacre::tokenizer
