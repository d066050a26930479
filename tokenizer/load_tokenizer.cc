// LoadTokenizer of tokenizer.h: which files a model folder has.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/gguf/gguf_file.h"
#include "common/status_macros.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/tiktoken_tokenizer.h"
#include "tokenizer/tiktoken_vocabulary.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

// The largest published tokenizer.json has about 35 MB.
constexpr int64_t kMaxFileBytes = int64_t{1} << 28;

// The content, or nothing when there is no such file. DATA_LOSS: it is there
// but cannot be read.
absl::StatusOr<std::optional<std::string>> ReadIfThere(
    const std::string& path) {
  absl::StatusOr<std::string> content = ReadRegularFile(path, kMaxFileBytes);
  if (absl::IsNotFound(content.status())) return std::optional<std::string>();
  if (!content.ok()) return content.status();
  return std::optional<std::string>(*std::move(content));
}

absl::Status AtFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

constexpr char kConvert[] =
    "transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...) "
    "writes it as tokenizer.json, which is read";

std::string PathIn(const std::string& model_dir, absl::string_view name) {
  return absl::StrCat(model_dir, "/", name);
}

bool IsThere(const std::string& model_dir, absl::string_view name) {
  std::error_code error;
  return std::filesystem::exists(PathIn(model_dir, name), error);
}

// All special tokens of such a vocabulary are told in one place.
absl::Status CheckKnowsTokens(const TokenizerConfig& config,
                              const Tokenizer& tokenizer) {
  for (const auto* tokens : {&config.added_tokens, &config.listed_tokens}) {
    for (const AddedToken& token : *tokens) {
      const std::optional<int32_t> id = tokenizer.PieceToId(token.content);
      if (id && (*id == token.id || token.id < 0)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          token.path, ": '", CutUtf8(token.content, 64),
          "' is no special token of this vocabulary",
          token.id < 0 ? ""
                       : absl::StrCat(", or has another id than ", token.id)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTiktokenOf(
    const std::string& model_dir, absl::string_view name,
    absl::string_view vocabulary, const std::string& tokenizer_config,
    const TokenizerConfig& config) {
  TiktokenFolder folder;
  folder.is_qwen = name == kQwenTiktoken;
  folder.tokenizer_config = tokenizer_config;
  NACRE_ASSIGN_OR_RETURN(std::optional<std::string> model_config,
                         ReadIfThere(PathIn(model_dir, "config.json")));
  folder.model_config = std::move(model_config).value_or("");
  folder.has_token_maps = IsThere(model_dir, "special_tokens_map.json") ||
                          IsThere(model_dir, "added_tokens.json");
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                         ParseTiktokenTokenizer(vocabulary, folder));
  NACRE_RETURN_IF_ERROR(CheckKnowsTokens(config, *tokenizer));
  return tokenizer;
}

// What the files beside the tokenizer's own say of its tokens.
absl::StatusOr<TokenizerConfig> ReadConfigOf(
    const std::string& model_dir,
    const std::optional<std::string>& config_text) {
  TokenizerConfig config;
  if (config_text) {
    absl::StatusOr<TokenizerConfig> parsed = ParseTokenizerConfig(*config_text);
    if (!parsed.ok()) {
      return AtFile(PathIn(model_dir, "tokenizer_config.json"),
                    parsed.status());
    }
    config = *std::move(parsed);
  }
  if (config.has_decoder) return config;
  for (const auto& [name, add] :
       {std::pair("special_tokens_map.json", &AddSpecialTokensMap),
        std::pair("added_tokens.json", &AddAddedTokensFile)}) {
    const std::string path = PathIn(model_dir, name);
    NACRE_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                           ReadIfThere(path));
    if (!text) continue;
    const absl::Status added = add(*text, &config);
    if (!added.ok()) return AtFile(path, added);
  }
  return config;
}

// Of a folder with neither file: what it has instead.
std::string UnreadForms(const std::string& model_dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path dir = model_dir;
  if (fs::exists(dir / "vocab.json", error)) {
    return absl::StrCat("; vocab.json and merges.txt say no pre-tokenizer: ",
                        kConvert);
  }
  for (auto file = fs::directory_iterator(dir, error);
       !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (absl::EndsWith(name, ".tiktoken")) {
      return absl::StrCat("; ", name,
                          " is a tiktoken vocabulary, which has neither the "
                          "pre-tokenizer nor the special tokens. A "
                          "tokenizer.json beside it is read in its place");
    }
    if (name == "tekken.json") {
      return absl::StrCat("; tekken.json is mistral-common's form: ", kConvert);
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model_dir) {
  if (gguf::File::Is(model_dir)) {
    NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::File> file,
                           gguf::File::Open(model_dir));
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        ParseGgufTokenizer(file->contents().metadata);
    if (!tokenizer.ok()) return AtFile(model_dir, tokenizer.status());
    return tokenizer;
  }
  NACRE_ASSIGN_OR_RETURN(
      const std::optional<std::string> config_text,
      ReadIfThere(PathIn(model_dir, "tokenizer_config.json")));
  NACRE_ASSIGN_OR_RETURN(const TokenizerConfig config,
                         ReadConfigOf(model_dir, config_text));
  for (const absl::string_view name :
       {"tokenizer.json", "tokenizer.model", kQwenTiktoken}) {
    const std::string path = PathIn(model_dir, name);
    NACRE_ASSIGN_OR_RETURN(const std::optional<std::string> content,
                           ReadIfThere(path));
    if (!content) continue;
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        name == "tokenizer.json" ? ParseHuggingFaceTokenizer(*content, config)
        : name == "tokenizer.model" && !IsTiktoken(*content)
            ? ParseSentencePieceTokenizer(*content, config)
            : ParseTiktokenOf(model_dir, name, *content,
                              config_text.value_or(""), config);
    if (!tokenizer.ok()) return AtFile(path, tokenizer.status());
    return tokenizer;
  }
  return absl::NotFoundError(
      absl::StrCat("no tokenizer.json and no tokenizer.model in ", model_dir,
                   UnreadForms(model_dir)));
}

}  // namespace nacre::tokenizer
