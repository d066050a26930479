// Look-ups in the tables of unicode_data.h. Pure functions.

#ifndef TOKENIZER_UNICODE_ADDITIONS_H_
#define TOKENIZER_UNICODE_ADDITIONS_H_

#include "absl/strings/string_view.h"
#include "tokenizer/unicode_data.h"

namespace nacre::tokenizer {

// The entry of `code_point`, or nullptr.
const UnicodeAddition* FindUnicodeAddition(char32_t code_point);

// Whether valid UTF-8 `text` has a character with an entry. Reads eight bytes
// of ASCII at a time.
bool HasUnicodeAddition(absl::string_view text);

// Whether normalization leaves `code_point` as it is.
bool IsInert(char32_t code_point);

// Lower case by the table; `code_point` itself if it has no entry.
char32_t AddedLowercase(char32_t code_point);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_UNICODE_ADDITIONS_H_
