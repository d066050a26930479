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

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTiktokenOf(
    const std::string& model_dir, absl::string_view name,
    absl::string_view vocabulary, const std::string& tokenizer_config) {
  TiktokenFolder folder;
  folder.is_qwen = name == kQwenTiktoken;
  folder.tokenizer_config = tokenizer_config;
  NACRE_ASSIGN_OR_RETURN(std::optional<std::string> model_config,
                         ReadIfThere(PathIn(model_dir, "config.json")));
  folder.model_config = std::move(model_config).value_or("");
  folder.has_token_maps = IsThere(model_dir, "special_tokens_map.json") ||
                          IsThere(model_dir, "added_tokens.json");
  return ParseTiktokenTokenizer(vocabulary, folder);
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
  TokenizerConfig config;
  const std::string config_path = PathIn(model_dir, "tokenizer_config.json");
  NACRE_ASSIGN_OR_RETURN(const std::optional<std::string> config_text,
                         ReadIfThere(config_path));
  if (config_text) {
    absl::StatusOr<TokenizerConfig> parsed = ParseTokenizerConfig(*config_text);
    if (!parsed.ok()) return AtFile(config_path, parsed.status());
    config = *std::move(parsed);
  }
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
                              config_text.value_or(""));
    if (!tokenizer.ok()) return AtFile(path, tokenizer.status());
    return tokenizer;
  }
  return absl::NotFoundError(
      absl::StrCat("no tokenizer.json and no tokenizer.model in ", model_dir,
                   UnreadForms(model_dir)));
}

}  // namespace nacre::tokenizer
