// A tokenizer from a Hugging Face tokenizer.json with a BPE model. Equal to the
// `tokenizers` library, id by id. "truncation" and "padding" are not applied: a
// prompt that is too long is an error of the caller, not cut. An added token
// decodes to its content as written, also one that is matched normalized. (Some
// versions of the library decode those to the normalized content.)

#ifndef TOKENIZER_HUGGING_FACE_TOKENIZER_H_
#define TOKENIZER_HUGGING_FACE_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json_fields.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace nacre::tokenizer {

// BOS and EOS are added as the post_processor says; add_bos_token and
// add_eos_token of the config, where they are given, take its place.
// INVALID_ARGUMENT: malformed, with the path of the field. UNIMPLEMENTED: a
// component of a type that is not supported.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseHuggingFaceTokenizer(
    absl::string_view json, const TokenizerConfig& config = {});

// The same of a tokenizer.json without "model": its pieces are `pieces`, one at
// least, which BpeModel::OfRanks merges.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeRankedTokenizer(
    const Json& json, std::vector<std::string> pieces,
    const TokenizerConfig& config);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_HUGGING_FACE_TOKENIZER_H_
