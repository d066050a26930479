// What a folder says about added and special tokens beside the tokenizer's own
// file: tokenizer_config.json and, of older checkpoints,
// special_tokens_map.json and added_tokens.json. Plain data and pure functions.

#ifndef TOKENIZER_TOKENIZER_CONFIG_H_
#define TOKENIZER_TOKENIZER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
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
  std::string path;  // the file and field that has it, for messages
};

// A named token: not mentioned, set to null, or set to its text.
struct NamedToken {
  bool mentioned = false;
  std::optional<std::string> content;
};

// A field of one special token ("pad_token") that is given.
struct NamedField {
  std::string path;
  std::string content;
};

struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  NamedToken bos_token;
  NamedToken eos_token;
  // SentencePiece only: true adds the dummy prefix after each special token
  // too, false only at the beginning of the text.
  bool legacy = true;
  // added_tokens_decoder, or added_tokens.json in its place. Ascending by id.
  std::vector<AddedToken> added_tokens;
  // Whether added_tokens_decoder is there. `transformers` then reads neither
  // special_tokens_map.json nor added_tokens.json.
  bool has_decoder = false;
  // Those of extra_special_tokens, then of additional_special_tokens: special
  // tokens whose ids are not told (-1). A name may be there twice.
  std::vector<AddedToken> listed_tokens;
  std::vector<NamedField> named_fields;  // of all keys that end with _token
};

// INVALID_ARGUMENT: no JSON object, or a field of the wrong type.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(absl::string_view json);

// The names of the listed tokens and the named fields.
absl::flat_hash_set<std::string> SpecialNames(const TokenizerConfig& config);

// Adds what the two older files have to a config without added_tokens_decoder,
// in this order. BOS and EOS stay the config's. Errors as above.
absl::Status AddSpecialTokensMap(absl::string_view json,
                                 TokenizerConfig* config);
absl::Status AddAddedTokensFile(absl::string_view json,
                                TokenizerConfig* config);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TOKENIZER_CONFIG_H_
