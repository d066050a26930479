// A compiled regular expression over UTF-8 text (PCRE2 with UTF, UCP and JIT).
// It has the meaning and the Unicode version (16) that the `tokenizers` library
// gives it (Oniguruma). Immutable, thread-safe.

#ifndef TOKENIZER_REGEX_H_
#define TOKENIZER_REGEX_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/text_range.h"

namespace nacre::tokenizer {

using TakeMatch = absl::FunctionRef<absl::Status(const TextRange& match)>;

class Regex {
 public:
  // INVALID_ARGUMENT: it is malformed; UNIMPLEMENTED: it has a construct of
  // Oniguruma that PCRE2 cannot say. Messages have `path`, the pattern's
  // beginning and what is wrong.
  static absl::StatusOr<Regex> Compile(absl::string_view pattern,
                                       absl::string_view path);
  // A pattern that finds `literal` itself.
  static std::string Escape(absl::string_view literal);

  // Gives `take` the matches in valid UTF-8 `text`, left to right, without
  // overlap. An error of `take` ends the search and is returned.
  // RESOURCE_EXHAUSTED: one match takes too many steps or too much memory. The
  // message has the pattern's first 64 bytes.
  absl::Status ForEachMatch(absl::string_view text, TakeMatch take) const;
  // All of them.
  absl::StatusOr<std::vector<TextRange>> FindAll(absl::string_view text) const;

 private:
  // pcre2_code; shared: copies are cheap.
  std::shared_ptr<const void> code_;
  // For texts with characters of unicode_data.h; null: code_ does.
  std::shared_ptr<const void> added_code_;
  std::string pattern_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_REGEX_H_
