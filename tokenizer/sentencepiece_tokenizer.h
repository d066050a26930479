// A tokenizer from a SentencePiece BPE model. Equal to the library's encoder
// and decoder, id by id. Special tokens in the text, BOS and EOS, which the
// library does not do, follow Hugging Face's LlamaTokenizer.

#ifndef TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
#define TOKENIZER_SENTENCEPIECE_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace nacre::tokenizer {

// `model_bytes` is the content of tokenizer.model. Without add_bos_token in the
// config BOS is added if the model has one; EOS is added only on request.
// Errors: ParseSentencePieceModel's, and INVALID_ARGUMENT for a configured
// token that the vocabulary lacks or an added token whose id is taken.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceTokenizer(
    absl::string_view model_bytes, const TokenizerConfig& config = {});

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
