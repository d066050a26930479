// A tokenizer from a vocabulary of tiktoken. The vocabulary says neither how
// text is split nor the special tokens, so the files beside it must: as
// `transformers` reads such a folder, or as one that is known (Llama 3, the
// first Qwen). docs/tokenizers.md has what is asked of each.
//
// Pure functions.

#ifndef TOKENIZER_TIKTOKEN_TOKENIZER_H_
#define TOKENIZER_TIKTOKEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

// The file of the first Qwen's vocabulary.
inline constexpr char kQwenTiktoken[] = "qwen.tiktoken";

// What else is in the folder. Texts of files that are not there are empty.
struct TiktokenFolder {
  bool is_qwen = false;          // the vocabulary is kQwenTiktoken
  std::string tokenizer_config;  // tokenizer_config.json
  std::string model_config;      // config.json
  // special_tokens_map.json or added_tokens.json, where older folders have
  // special tokens.
  bool has_token_maps = false;
};

// INVALID_ARGUMENT: a file is malformed, or tokens of tokenizer_config.json
// have ids or names that do not go with the vocabulary. UNIMPLEMENTED: the
// files do not tell the splitting or the special tokens.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTiktokenTokenizer(
    absl::string_view vocabulary, const TiktokenFolder& folder);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TIKTOKEN_TOKENIZER_H_
