// The tokens of a GGUF file, and the files of a model folder that say the same.
//
// Values and pure functions.

#ifndef TOKENIZER_GGUF_VOCABULARY_H_
#define TOKENIZER_GGUF_VOCABULARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/metadata.h"
#include "tokenizer/sentencepiece_model.h"

namespace nacre::tokenizer {

// Borrows the file's bytes.
struct GgufVocabulary {
  std::vector<absl::string_view> tokens;  // by id
  std::vector<PieceType> types;           // of each
};

// INVALID_ARGUMENT: there are more tokens than kMaxVocabularySize, as many
// types as tokens are not there, or a type is unknown.
absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(
    const gguf::Metadata& metadata);

// How a tokenizer.ggml.pre cuts a text into words.
struct GgufPreTokenizer;

// UNIMPLEMENTED: the name is not known.
absl::StatusOr<const GgufPreTokenizer*> FindGgufPreTokenizer(
    absl::string_view name);
// Whether texts begin with BOS where the file does not say.
bool AddsBos(const GgufPreTokenizer& pre_tokenizer);

// A tokenizer.json of byte-level BPE. INVALID_ARGUMENT: a token is no UTF-8.
absl::StatusOr<std::string> BpeTokenizerJson(
    const GgufVocabulary& vocabulary,
    const std::vector<absl::string_view>& merges,
    const GgufPreTokenizer& pre_tokenizer);

// A tokenizer.model. INVALID_ARGUMENT: there are not as many scores as tokens.
absl::StatusOr<std::string> SentencePieceModelBytes(
    const GgufVocabulary& vocabulary, const gguf::Metadata& metadata);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_GGUF_VOCABULARY_H_
