#include "tokenizer/tiktoken_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/known_patterns.h"
#include "tokenizer/tiktoken_vocabulary.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

constexpr char kConfig[] = "tokenizer_config";
constexpr size_t kLlama3Ranks = 128000;
constexpr size_t kLlama3Special = 256;
constexpr size_t kQwenRanks = 151643;
constexpr int kQwenExtras = 205;

// What the vocabulary itself does not say.
struct Form {
  absl::string_view pattern;
  bool is_nfc = false;
  std::vector<AddedToken> tokens;
  TokenizerConfig config;
};

// The JSON of a file, an empty object where there is none.
absl::StatusOr<Json> ObjectOf(const std::string& text, const char* name) {
  if (text.empty()) return Json::object();
  return ParseJsonObject(text, name);
}

absl::Status Untold(size_t ranks, absl::string_view reason) {
  return absl::UnimplementedError(absl::StrCat(
      "a tiktoken vocabulary of ", ranks,
      " tokens, which has neither the pre-tokenizer nor the special tokens: ",
      reason, ". A tokenizer.json beside it is read in its place"));
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", CutUtf8(text, 64), "'");
}

AddedToken Special(int32_t id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  token.special = true;
  return token;
}

// Those of `transformers`' converter of Llama's checkpoints: for Llama 3 as in
// Meta's code, which names some of Llama 3.1 to 3.3 otherwise.
std::vector<AddedToken> Llama3Tokens(bool is_3_1) {
  absl::string_view names[kLlama3Special];  // empty: a reserved token
  names[0] = "begin_of_text";
  names[1] = "end_of_text";
  names[6] = "start_header_id";
  names[7] = "end_header_id";
  names[9] = "eot_id";
  if (is_3_1) {
    names[4] = "finetune_right_pad_id";
    names[8] = "eom_id";
    names[10] = "python_tag";
  }
  std::vector<AddedToken> tokens;
  int reserved = 0;
  for (const absl::string_view name : names) {
    tokens.push_back(Special(
        static_cast<int32_t>(kLlama3Ranks + tokens.size()),
        name.empty()
            ? absl::StrCat("<|reserved_special_token_", reserved++, "|>")
            : absl::StrCat("<|", name, "|>")));
  }
  return tokens;
}

// Those of tokenization_qwen.py.
std::vector<AddedToken> QwenTokens() {
  std::vector<std::string> names = {"<|endoftext|>", "<|im_start|>",
                                    "<|im_end|>"};
  for (int i = 0; i < kQwenExtras; ++i) {
    names.push_back(absl::StrCat("<|extra_", i, "|>"));
  }
  std::vector<AddedToken> tokens;
  for (std::string& name : names) {
    tokens.push_back(Special(static_cast<int32_t>(kQwenRanks + tokens.size()),
                             std::move(name)));
    // That code normalizes a text before it looks for them.
    tokens.back().normalized = true;
  }
  return tokens;
}

// The names of a list of tokens beyond added_tokens_decoder.
absl::StatusOr<std::vector<std::string>> FurtherNames(const Json& json) {
  for (const char* key :
       {"extra_special_tokens", "additional_special_tokens"}) {
    const Json* const list = FindField(json, key);
    // `transformers` takes the first that is not empty.
    if (list == nullptr || !list->is_array() || list->empty()) continue;
    std::vector<std::string> names;
    for (const Json& name : *list) {
      const std::string path =
          absl::StrCat(kConfig, ".", key, "[", names.size(), "]");
      if (!name.is_string()) return TypeError(path, name, "a string");
      names.push_back(name.get<std::string>());
      if (names.back().empty()) {
        return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
      }
    }
    return names;
  }
  return std::vector<std::string>();
}

// Each token that the config names must be one of the special tokens:
// `transformers` would give others an id that the model may not have.
absl::Status CheckNamedTokens(const Json& json,
                              const std::vector<AddedToken>& tokens) {
  absl::flat_hash_set<absl::string_view> contents;
  for (const AddedToken& token : tokens) contents.insert(token.content);
  const auto check = [&](const std::string& path,
                         const Json& value) -> absl::Status {
    if (value.is_null() || value.is_boolean()) return absl::OkStatus();
    std::string content;
    if (value.is_object()) {
      NACRE_ASSIGN_OR_RETURN(content, StringField(value, "content", path));
    } else if (value.is_string()) {
      content = value.get<std::string>();
    } else {
      return TypeError(path, value, "a string or an object");
    }
    if (contents.contains(content)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path, " ", Quoted(content),
                     " is none of the added tokens: it has no id"));
  };
  for (const auto& [key, value] : json.items()) {
    if (!absl::EndsWith(key, "_token")) continue;
    NACRE_RETURN_IF_ERROR(check(absl::StrCat(kConfig, ".", key), value));
  }
  const Json* const named = FindField(json, "extra_special_tokens");
  if (named == nullptr || !named->is_object()) return absl::OkStatus();
  for (const auto& [key, value] : named->items()) {
    NACRE_RETURN_IF_ERROR(check(
        absl::StrCat(kConfig, ".extra_special_tokens.", key.substr(0, 64)),
        value));
  }
  return absl::OkStatus();
}

// The tokens behind the ranks have ids without a gap and names of their own:
// `transformers` gives others ids that are not those of the file.
absl::Status CheckIds(const std::vector<AddedToken>& tokens,
                      const std::vector<std::string>& pieces) {
  absl::flat_hash_set<absl::string_view> known(pieces.begin(), pieces.end());
  size_t next = pieces.size();
  for (const AddedToken& token : tokens) {
    const std::string path = absl::StrCat(kConfig, ".added_tokens_decoder.",
                                          token.id, " ", Quoted(token.content));
    if (static_cast<size_t>(token.id) < pieces.size()) {
      if (pieces[token.id] == token.content) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          path, " has the id of a token of the vocabulary, which has ",
          pieces.size()));
    }
    if (static_cast<size_t>(token.id) != next) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " has another id than the next behind the vocabulary, ", next));
    }
    if (!known.insert(token.content).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is the text of another token, too"));
    }
    ++next;
  }
  return absl::OkStatus();
}

// The tokens that tokenizer_config.json lists, with their ids.
absl::StatusOr<std::vector<AddedToken>> ListedTokens(
    const Json& json, const TokenizerConfig& config,
    const std::vector<std::string>& pieces) {
  std::vector<AddedToken> tokens = config.added_tokens;
  std::sort(
      tokens.begin(), tokens.end(),
      [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  int32_t next = static_cast<int32_t>(pieces.size());
  absl::flat_hash_set<std::string> contents;
  for (const AddedToken& token : tokens) {
    next = std::max(next, token.id + 1);
    contents.insert(token.content);
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         FurtherNames(json));
  for (const std::string& name : names) {
    if (contents.insert(name).second) tokens.push_back(Special(next++, name));
  }
  NACRE_RETURN_IF_ERROR(CheckIds(tokens, pieces));
  return tokens;
}

bool IsLlama3(const Json& model, size_t ranks) {
  const Json* const type = FindField(model, "model_type");
  const Json* const size = FindField(model, "vocab_size");
  return ranks == kLlama3Ranks && type != nullptr && *type == "llama" &&
         size != nullptr && *size == kLlama3Ranks + kLlama3Special;
}

// Llama 3 has its positions unscaled, Llama 3.1 to 3.3 as that scaling says.
bool IsLlama31(const Json& model) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* const rope = FindField(model, key);
    if (rope == nullptr || !rope->is_object()) continue;
    for (const char* type : {"rope_type", "type"}) {
      const Json* const found = FindField(*rope, type);
      if (found != nullptr && *found == "llama3") return true;
    }
  }
  return false;
}

void SetUnlessMentioned(const char* content, NamedToken* token) {
  if (token->mentioned) return;
  token->mentioned = true;
  token->content = content;
}

// A tokenizer.model.
absl::StatusOr<Form> FormOfModel(const TiktokenFolder& folder, const Json& json,
                                 TokenizerConfig config,
                                 const std::vector<std::string>& pieces) {
  if (FindField(json, "auto_map") != nullptr) {
    return Untold(pieces.size(),
                  "tokenizer_config.json names code of its own (auto_map)");
  }
  NACRE_ASSIGN_OR_RETURN(const std::string type,
                         StringFieldOr(json, "tokenizer_class", "", kConfig));
  if (!type.empty() && type != "PreTrainedTokenizerFast" &&
      type != "TokenizersBackend") {
    return Untold(pieces.size(),
                  absl::StrCat(kConfig, ".tokenizer_class is ", Quoted(type),
                               ", which may have others"));
  }
  Form form{.pattern = kLlama3Pattern, .config = std::move(config)};
  NACRE_ASSIGN_OR_RETURN(form.tokens, ListedTokens(json, form.config, pieces));
  if (!form.tokens.empty()) {
    if (form.config.added_tokens.empty() && folder.has_token_maps) {
      return Untold(pieces.size(),
                    "tokenizer_config.json has no added_tokens_decoder, but "
                    "special_tokens_map.json or added_tokens.json is there, "
                    "which are not read");
    }
    return form;
  }
  NACRE_ASSIGN_OR_RETURN(const Json model,
                         ObjectOf(folder.model_config, "config.json"));
  if (!IsLlama3(model, pieces.size())) {
    return Untold(pieces.size(),
                  "tokenizer_config.json lists none (added_tokens_decoder), "
                  "and it is not Llama 3's of 128000 tokens beside a "
                  "config.json of model_type llama and vocab_size 128256");
  }
  form.tokens = Llama3Tokens(IsLlama31(model));
  SetUnlessMentioned("<|begin_of_text|>", &form.config.bos_token);
  SetUnlessMentioned("<|end_of_text|>", &form.config.eos_token);
  if (!form.config.add_bos_token && form.config.bos_token.content) {
    form.config.add_bos_token = true;
  }
  return form;
}

// A qwen.tiktoken. Other models of that family have other special tokens.
absl::StatusOr<Form> FormOfQwen(const TiktokenFolder& folder, const Json& json,
                                TokenizerConfig config, size_t ranks) {
  NACRE_ASSIGN_OR_RETURN(const Json model,
                         ObjectOf(folder.model_config, "config.json"));
  NACRE_ASSIGN_OR_RETURN(const std::string type,
                         StringFieldOr(json, "tokenizer_class", "", kConfig));
  NACRE_ASSIGN_OR_RETURN(const std::vector<std::string> further,
                         FurtherNames(json));
  if (ranks != kQwenRanks || type != "QWenTokenizer" || model.empty() ||
      FindField(model, "visual") != nullptr ||
      FindField(model, "audio") != nullptr || !config.added_tokens.empty() ||
      !further.empty()) {
    return Untold(
        ranks,
        "it is not the first Qwen's of 151643 tokens beside a config.json "
        "without visual and audio, and a tokenizer_config.json of "
        "tokenizer_class QWenTokenizer and no further tokens");
  }
  Form form{.pattern = kQwen2Pattern,
            .is_nfc = true,
            .tokens = QwenTokens(),
            .config = std::move(config)};
  SetUnlessMentioned("<|endoftext|>", &form.config.eos_token);
  return form;
}

// All of a tokenizer.json but the model.
Json JsonOf(const Form& form) {
  Json added = Json::array();
  for (const AddedToken& token : form.tokens) {
    added.push_back({{"id", static_cast<uint32_t>(token.id)},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(form.pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  Json json = {
      {"added_tokens", std::move(added)},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  if (form.is_nfc) json["normalizer"] = {{"type", "NFC"}};
  return json;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTiktokenTokenizer(
    absl::string_view vocabulary, const TiktokenFolder& folder) {
  NACRE_ASSIGN_OR_RETURN(std::vector<std::string> pieces,
                         ParseTiktokenVocabulary(vocabulary));
  for (std::string& piece : pieces) piece = EncodeByteLevel(piece);
  NACRE_ASSIGN_OR_RETURN(const Json json,
                         ObjectOf(folder.tokenizer_config, kConfig));
  TokenizerConfig config;
  if (!folder.tokenizer_config.empty()) {
    NACRE_ASSIGN_OR_RETURN(config,
                           ParseTokenizerConfig(folder.tokenizer_config));
  }
  NACRE_ASSIGN_OR_RETURN(
      const Form form,
      folder.is_qwen
          ? FormOfQwen(folder, json, std::move(config), pieces.size())
          : FormOfModel(folder, json, std::move(config), pieces));
  NACRE_RETURN_IF_ERROR(CheckNamedTokens(json, form.tokens));
  return MakeRankedTokenizer(JsonOf(form), std::move(pieces), form.config);
}

}  // namespace nacre::tokenizer
