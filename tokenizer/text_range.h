// Bytes of a text.

#ifndef TOKENIZER_TEXT_RANGE_H_
#define TOKENIZER_TEXT_RANGE_H_

#include <cstddef>

namespace nacre::tokenizer {

struct TextRange {
  size_t begin;  // bytes
  size_t end;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TEXT_RANGE_H_
