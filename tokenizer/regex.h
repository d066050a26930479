// A compiled regular expression over UTF-8 text (PCRE2 with UTF, UCP and JIT).
// It has the meaning and the Unicode version (16) that the `tokenizers` library
// gives it (Oniguruma). Immutable, thread-safe.

#ifndef TOKENIZER_REGEX_H_
#define TOKENIZER_REGEX_H_

#include <cstddef>
#include <cstdint>
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

// How many steps the matches of one text may take together, beside those that
// are cheap. A pattern could otherwise take the most that a match may at every
// character. Used by one thread.
class StepBudget {
 public:
  // A match of fewer is not counted, so that patterns of published files pay
  // for long runs of one kind only.
  static constexpr uint32_t kUncounted = 1024;
  static constexpr uint64_t kSteps = 64'000'000;
  static constexpr uint64_t kStepsOfByte = 256;

  explicit StepBudget(size_t text_bytes)
      : left_(kSteps + kStepsOfByte * text_bytes) {}

  // Whether so many were left.
  bool Take(uint64_t steps) {
    const bool is_enough = steps <= left_;
    left_ -= is_enough ? steps : left_;
    return is_enough;
  }

 private:
  uint64_t left_;
};

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
  // RESOURCE_EXHAUSTED: one match takes too many steps or too much memory, or
  // all of them more than is left of `steps`; null: of a budget of this text.
  // The message has the pattern's first 64 bytes.
  absl::Status ForEachMatch(absl::string_view text, TakeMatch take,
                            StepBudget* steps = nullptr) const;
  // All of them.
  absl::StatusOr<std::vector<TextRange>> FindAll(absl::string_view text) const;

 private:
  // pcre2_code; shared: copies are cheap.
  std::shared_ptr<const void> code_;
  // For texts with characters of unicode_data.h; null: code_ does.
  std::shared_ptr<const void> added_code_;
  std::string pattern_;
  bool looks_at_start_ = false;  // has \G: where a search begins matters
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_REGEX_H_
