// The list of added tokens of a tokenizer: those of its own file, and those
// that the files beside it have. Ids are those of `transformers`, or an error.
//
// Pure functions.

#ifndef TOKENIZER_CONFIGURED_TOKENS_H_
#define TOKENIZER_CONFIGURED_TOKENS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer_config.h"

namespace nacre::tokenizer {

// What holds of an id that a file beside the tokenizer's own tells.
enum class ToldIds {
  // As in `tokenizers`: a name that the vocabulary has keeps its id there.
  // Others must have the next one behind the vocabulary.
  kFollow,
  // As in the LlamaTokenizer of transformers 4: any that no other token has.
  kAsTold,
};

// `own` with the tokens of `config`. Of a token that both have the flags of
// added_tokens_decoder win; those of added_tokens.json do not. Listed tokens
// get their id in the vocabulary, or the next one. `pieces` are by id, with
// those of `own`; empty is an unused id. INVALID_ARGUMENT: an id of another
// token, or one that cannot be told; the message names field and token.
absl::StatusOr<std::vector<AddedToken>> WithConfiguredTokens(
    std::vector<AddedToken> own, const std::vector<std::string>& pieces,
    const TokenizerConfig& config, ToldIds told);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_CONFIGURED_TOKENS_H_
