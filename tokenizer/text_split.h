// Cutting a text at the matches of a pattern. Pure function.

#ifndef TOKENIZER_TEXT_SPLIT_H_
#define TOKENIZER_TEXT_SPLIT_H_

#include <cstddef>
#include <vector>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"

namespace nacre::tokenizer {

// The non-empty pieces of a text of `size` bytes that has `matches` (ordered,
// no overlap), left to right.
std::vector<TextRange> SplitAtMatches(size_t size,
                                      const std::vector<TextRange>& matches,
                                      SplitBehavior behavior, bool invert);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TEXT_SPLIT_H_
