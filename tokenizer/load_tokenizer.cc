// LoadTokenizer of tokenizer.h: which files a model folder has.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/gguf/gguf_file.h"
#include "common/status_macros.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
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
  absl::StatusOr<std::string> content =
      ReadRegularFile(path, kMaxFileBytes);
  if (absl::IsNotFound(content.status())) return std::optional<std::string>();
  if (!content.ok()) return content.status();
  return std::optional<std::string>(*std::move(content));
}

absl::Status AtFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
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
  const std::string config_path =
      absl::StrCat(model_dir, "/tokenizer_config.json");
  NACRE_ASSIGN_OR_RETURN(const std::optional<std::string> config_text,
                         ReadIfThere(config_path));
  if (config_text) {
    absl::StatusOr<TokenizerConfig> parsed = ParseTokenizerConfig(*config_text);
    if (!parsed.ok()) return AtFile(config_path, parsed.status());
    config = *std::move(parsed);
  }
  using Parser = absl::StatusOr<std::unique_ptr<Tokenizer>> (*)(
      absl::string_view, const TokenizerConfig&);
  constexpr struct {
    const char* name;
    Parser parse;
  } kFormats[] = {{"tokenizer.json", ParseHuggingFaceTokenizer},
                  {"tokenizer.model", ParseSentencePieceTokenizer}};
  for (const auto& format : kFormats) {
    const std::string path = absl::StrCat(model_dir, "/", format.name);
    NACRE_ASSIGN_OR_RETURN(const std::optional<std::string> content,
                           ReadIfThere(path));
    if (!content) continue;
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        format.parse(*content, config);
    if (!tokenizer.ok()) return AtFile(path, tokenizer.status());
    return tokenizer;
  }
  return absl::NotFoundError(
      absl::StrCat("no tokenizer.json and no tokenizer.model in ", model_dir));
}

}  // namespace nacre::tokenizer
