// The GPT-2 alphabet: each byte as one printable character, so that a
// byte-level BPE can be written as text. Pure functions over constant tables.

#ifndef TOKENIZER_BYTE_LEVEL_H_
#define TOKENIZER_BYTE_LEVEL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// Bytes to alphabet: each byte becomes one character (one or two bytes).
std::string EncodeByteLevel(absl::string_view bytes);

// Alphabet to bytes. A text with a character outside the alphabet is returned
// as it is (added tokens).
std::string DecodeByteLevel(absl::string_view text);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_BYTE_LEVEL_H_
