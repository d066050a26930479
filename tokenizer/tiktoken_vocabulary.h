// Reader of tiktoken's vocabularies: lines of a token in base64, a space and
// its rank, which is its id. No file of them has more than that: not how text
// is split, and no special tokens.
//
// Pure functions.

#ifndef TOKENIZER_TIKTOKEN_VOCABULARY_H_
#define TOKENIZER_TIKTOKEN_VOCABULARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// The longest of published files is of 128 bytes.
inline constexpr size_t kMaxTiktokenTokenBytes = 512;
// The largest published file has about 4 MB.
inline constexpr size_t kMaxTiktokenBytes = size_t{1} << 24;

// By the first line. No SentencePiece model begins so.
bool IsTiktoken(absl::string_view content);

// The tokens' bytes by rank. INVALID_ARGUMENT, with the number of the line and
// what it has: it is no such line, or a token or a rank is there twice, or a
// rank is not below the number of lines; or a byte has no token.
absl::StatusOr<std::vector<std::string>> ParseTiktokenVocabulary(
    absl::string_view content);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TIKTOKEN_VOCABULARY_H_
