// One token as text and as bytes, for log-probabilities.
//
// Pure functions.

#ifndef GATEWAY_TOKEN_TEXT_H_
#define GATEWAY_TOKEN_TEXT_H_

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace nacre::gateway {

struct TokenText {
  std::string text;   // UTF-8; U+FFFD for what is half a character
  std::string bytes;  // what the token really stands for
};

// As the token stands within a text: a blank before a word is kept, special
// tokens are shown.
TokenText TextOf(const tokenizer::Tokenizer& tokenizer, uint32_t id);

}  // namespace nacre::gateway

#endif  // GATEWAY_TOKEN_TEXT_H_
