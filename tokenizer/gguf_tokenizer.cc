#include "tokenizer/gguf_tokenizer.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace nacre::tokenizer {
namespace {

// The token that "tokenizer.ggml.NAME_token_id" names, if it does.
absl::StatusOr<NamedToken> NamedTokenOf(const gguf::Metadata& metadata,
                                        const GgufVocabulary& vocabulary,
                                        absl::string_view name) {
  NamedToken token;
  token.mentioned = true;
  const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
  if (!metadata.Has(key)) return token;
  NACRE_ASSIGN_OR_RETURN(const uint64_t id, metadata.Unsigned(key));
  if (id >= vocabulary.tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", key, " is ", id, ", the vocabulary has ",
                     vocabulary.tokens.size(), " tokens"));
  }
  token.content = std::string(vocabulary.tokens[id]);
  return token;
}

absl::StatusOr<TokenizerConfig> ConfigOf(const gguf::Metadata& metadata,
                                         const GgufVocabulary& vocabulary,
                                         bool adds_bos) {
  TokenizerConfig config;
  NACRE_ASSIGN_OR_RETURN(config.bos_token,
                         NamedTokenOf(metadata, vocabulary, "bos"));
  NACRE_ASSIGN_OR_RETURN(config.eos_token,
                         NamedTokenOf(metadata, vocabulary, "eos"));
  adds_bos = adds_bos && config.bos_token.content.has_value();
  NACRE_ASSIGN_OR_RETURN(
      config.add_bos_token,
      metadata.BoolOr("tokenizer.ggml.add_bos_token", adds_bos));
  NACRE_ASSIGN_OR_RETURN(
      config.add_eos_token,
      metadata.BoolOr("tokenizer.ggml.add_eos_token", false));
  return config;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseGgufTokenizer(
    const gguf::Metadata& metadata) {
  NACRE_ASSIGN_OR_RETURN(const absl::string_view model,
                         metadata.String("tokenizer.ggml.model"));
  if (model != "llama" && model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.ggml.model ", gguf::Shown(model),
                     " is not supported; supported: \"llama\", \"gpt2\""));
  }
  NACRE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary,
                         ReadGgufVocabulary(metadata));
  if (model == "llama") {
    NACRE_ASSIGN_OR_RETURN(const TokenizerConfig config,
                           ConfigOf(metadata, vocabulary, true));
    NACRE_ASSIGN_OR_RETURN(const std::string bytes,
                           SentencePieceModelBytes(vocabulary, metadata));
    return ParseSentencePieceTokenizer(bytes, config);
  }
  NACRE_ASSIGN_OR_RETURN(const absl::string_view name,
                         metadata.String("tokenizer.ggml.pre"));
  NACRE_ASSIGN_OR_RETURN(const GgufPreTokenizer* const pre_tokenizer,
                         FindGgufPreTokenizer(name));
  NACRE_ASSIGN_OR_RETURN(
      const TokenizerConfig config,
      ConfigOf(metadata, vocabulary, AddsBos(*pre_tokenizer)));
  NACRE_ASSIGN_OR_RETURN(const std::vector<absl::string_view> merges,
                         metadata.Strings("tokenizer.ggml.merges"));
  NACRE_ASSIGN_OR_RETURN(const std::string json,
                         BpeTokenizerJson(vocabulary, merges, *pre_tokenizer));
  return ParseHuggingFaceTokenizer(json, config);
}

}  // namespace nacre::tokenizer
