// Oniguruma's patterns (Ruby syntax, as `tokenizers` compiles them) in PCRE2's
// words. Every construct is either said so that both find the same matches or
// refused; none is passed through unread. Pure functions.

#ifndef TOKENIZER_PATTERN_TRANSLATOR_H_
#define TOKENIZER_PATTERN_TRANSLATOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// A pattern for PCRE2 with UTF, UCP, MULTILINE and LF as the newline. With
// `additions` it is right for the characters of unicode_data.h too; without, it
// is the faster one.
// INVALID_ARGUMENT: the pattern is malformed. UNIMPLEMENTED: it has a construct
// that has no translation. Messages name the construct and its byte.
absl::StatusOr<std::string> TranslatePattern(absl::string_view pattern,
                                             bool additions);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PATTERN_TRANSLATOR_H_
