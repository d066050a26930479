// The four Unicode normalization forms (of Unicode 9) and lower case (of
// Unicode 17), as in `tokenizers` 0.23.3: utf8proc's tables with the
// differences of unicode_data.h. Pure functions.

#ifndef TOKENIZER_UNICODE_NORMALIZATION_H_
#define TOKENIZER_UNICODE_NORMALIZATION_H_

#include <cstddef>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

struct UnicodeForm {
  bool compatibility;  // NFKC, NFKD
  bool compose;        // NFC, NFKC
};

// `text` must be valid UTF-8. O(n log n) whatever the text. Ends early where
// more than `most` bytes would come: the result is then longer than that, and
// not in the form.
std::string NormalizeUnicode(absl::string_view text, UnicodeForm form,
                             size_t most = std::numeric_limits<size_t>::max());

// Lower case of each character by itself (no final-sigma rule).
std::string LowercaseUnicode(absl::string_view text);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_UNICODE_NORMALIZATION_H_
