// LoadTokenizer of tokenizer.h: which files a model folder has.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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
constexpr char kTiktoken[] =
    "a tiktoken vocabulary, which has neither the pre-tokenizer nor the "
    "special tokens: ";

// Lines of a base64 text and a number.
bool IsTiktoken(absl::string_view content) {
  const absl::string_view line = content.substr(0, content.find('\n'));
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos) return false;
  std::string piece;
  int rank = 0;
  return absl::Base64Unescape(line.substr(0, space), &piece) &&
         absl::SimpleAtoi(line.substr(space + 1), &rank);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerModel(
    absl::string_view content, const TokenizerConfig& config) {
  if (!IsTiktoken(content)) return ParseSentencePieceTokenizer(content, config);
  return absl::UnimplementedError(absl::StrCat(kTiktoken, kConvert));
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
      return absl::StrCat("; ", name, " is ", kTiktoken, kConvert);
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
                  {"tokenizer.model", ParseTokenizerModel}};
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
      absl::StrCat("no tokenizer.json and no tokenizer.model in ", model_dir,
                   UnreadForms(model_dir)));
}

}  // namespace nacre::tokenizer
