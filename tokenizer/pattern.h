// A "pattern" of a tokenizer.json component: {"String": "..."} or
// {"Regex": "..."}. Immutable, thread-safe.

#ifndef TOKENIZER_PATTERN_H_
#define TOKENIZER_PATTERN_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/growth_limit.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/regex.h"

namespace nacre::tokenizer {

class Pattern {
 public:
  static absl::StatusOr<Pattern> Parse(const Json& component,
                                       absl::string_view path);
  static absl::StatusOr<Pattern> FromRegex(absl::string_view regex);

  // As Regex's.
  absl::Status ForEachMatch(absl::string_view text, TakeMatch take,
                            StepBudget* steps = nullptr) const;

  // `text` with every match replaced by `content`, taken literally. *head, the
  // length of a beginning of `text`, becomes what replaces that beginning; a
  // match that reaches beyond it counts as what follows. RESOURCE_EXHAUSTED as
  // soon as the result is over `limit`; null: it may be any.
  absl::StatusOr<std::string> ReplaceAll(absl::string_view text,
                                         absl::string_view content,
                                         const GrowthLimit* limit = nullptr,
                                         size_t* head = nullptr) const;
  // The most bytes that ReplaceAll with a content of `size` makes of one.
  size_t MostOfByte(size_t size) const;
  // The head of ReplaceAll for any number of beginnings, their lengths in
  // rising order. `size`: of what replaces a match.
  absl::Status MoveMarks(absl::string_view text, size_t size,
                         absl::Span<size_t> marks,
                         StepBudget* steps = nullptr) const;

 private:
  std::string literal_;  // used when there is no regex; empty: never matches
  std::optional<Regex> regex_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PATTERN_H_
