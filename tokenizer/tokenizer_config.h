// What tokenizer_config.json says about special tokens. Plain data.

#ifndef TOKENIZER_TOKENIZER_CONFIG_H_
#define TOKENIZER_TOKENIZER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// A token that is found in the text before any other rule applies.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... after it
  bool normalized = false;   // looked for in the normalized text
  bool special = false;
};

// A named token: not mentioned, set to null, or set to its text.
struct NamedToken {
  bool mentioned = false;
  std::optional<std::string> content;
};

struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  NamedToken bos_token;
  NamedToken eos_token;
  // SentencePiece only: true adds the dummy prefix after each special token
  // too, false only at the beginning of the text.
  bool legacy = true;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder
};

// INVALID_ARGUMENT: no JSON object, or a field of the wrong type.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(absl::string_view json);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TOKENIZER_CONFIG_H_
