// Reader of the vocabulary in the metadata of a GGUF file. It says there what a
// tokenizer.json or a tokenizer.model says, so it becomes one of these, and
// their readers make the tokenizer.
//
// Pure functions.

#ifndef TOKENIZER_GGUF_TOKENIZER_H_
#define TOKENIZER_GGUF_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/gguf/metadata.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

// NOT_FOUND or INVALID_ARGUMENT: a key is missing or malformed, and what the
// other readers say. UNIMPLEMENTED: a tokenizer.ggml.model other than "llama"
// and "gpt2", or a tokenizer.ggml.pre that is not known.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseGgufTokenizer(
    const gguf::Metadata& metadata);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_GGUF_TOKENIZER_H_
