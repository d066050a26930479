// The "normalizer" of a tokenizer.json. Immutable, thread-safe.

#ifndef TOKENIZER_NORMALIZER_H_
#define TOKENIZER_NORMALIZER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/growth_limit.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pattern.h"

namespace nacre::tokenizer {

class Normalizer {
 public:
  // Does nothing.
  Normalizer() = default;
  // `json` is the field's value, or nullptr. Knows Sequence, Prepend, Replace,
  // NFC, NFD, NFKC, NFKD, Lowercase, Strip. UNIMPLEMENTED: another type.
  static absl::StatusOr<Normalizer> Parse(const Json* json);

  bool empty() const { return steps_.empty(); }

  // Normalizes valid UTF-8. Errors: Regex::ForEachMatch's, and
  // RESOURCE_EXHAUSTED: a step makes more of the text than growth_limit.h
  // says, and ends there.
  // *head, how many bytes of `text` stem from the first character of the whole
  // input, becomes so many of the result's.
  // Each of `marks`, the lengths of beginnings of `text` in rising order, at
  // whole characters, becomes the length of what stems from that beginning.
  absl::StatusOr<std::string> Normalize(absl::string_view text,
                                        size_t* head = nullptr,
                                        absl::Span<size_t> marks = {},
                                        StepBudget* steps = nullptr) const;

 private:
  enum class Kind {
    kPrepend,
    kReplace,
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,
  };
  struct Step {
    Kind kind;
    std::string content;  // kPrepend and kReplace
    Pattern pattern;      // kReplace
    bool left = false;    // kStrip
    bool right = false;
  };

  absl::Status AddStep(const Json& json, const std::string& type,
                       const std::string& path);
  static absl::StatusOr<std::string> Apply(const Step& step,
                                           absl::string_view text,
                                           const GrowthLimit& limit,
                                           size_t* head);
  static absl::Status MoveMarks(const Step& step, absl::string_view text,
                                const GrowthLimit& limit,
                                absl::Span<size_t> marks);

  std::vector<Step> steps_;  // Sequences are flattened
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_NORMALIZER_H_
