// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that BPE
// sees one by one. Immutable, thread-safe.

#ifndef TOKENIZER_PRE_TOKENIZER_H_
#define TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/growth_limit.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pattern.h"

namespace nacre::tokenizer {

// A stretch of text on its way to the model.
struct Word {
  std::string text;
  // So many of its bytes stem from the first character of the whole input. More
  // than one word has some if the normalizer expanded that character.
  size_t head_bytes;
};

// What happens to the matches of a splitting pattern.
enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // neighbouring matches are one word
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  // `json` is the field's value, or nullptr. Knows Sequence, Split, ByteLevel,
  // Metaspace, Whitespace, WhitespaceSplit, Digits, Punctuation. UNIMPLEMENTED:
  // another type.
  static absl::StatusOr<PreTokenizer> Parse(const Json* json);

  // Cuts `word`, non-empty valid UTF-8, and gives `take` the parts one by one,
  // in order. Errors: Regex::ForEachMatch's, the first of `take`, and
  // RESOURCE_EXHAUSTED: there is more of them than growth_limit.h says.
  using TakeWord = absl::FunctionRef<absl::Status(Word word)>;
  absl::Status Apply(Word word, TakeWord take,
                     StepBudget* steps = nullptr) const;

 private:
  enum class Prepend { kNever, kFirst, kAlways };
  // One step: replace spaces, prepend, split, map to the byte alphabet, in this
  // order, each if it is set.
  struct Step {
    std::string space_replacement;
    Prepend prepend = Prepend::kNever;
    std::string prefix;
    std::optional<Pattern> pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;  // the text between the matches is what matches
    bool byte_level = false;
  };

  absl::Status AddStep(const Json& json, const std::string& type,
                       const std::string& path);
  static absl::StatusOr<Step> ParseSplit(const Json& json,
                                         const std::string& path);
  static absl::StatusOr<Step> ParseByteLevel(const Json& json,
                                             const std::string& path);
  static absl::StatusOr<Step> ParseMetaspace(const Json& json,
                                             const std::string& path);
  // The steps from `index` on.
  absl::Status ApplyFrom(size_t index, const GrowthLimit& limit, Word word,
                         TakeWord take) const;
  static absl::Status ApplyStep(const Step& step, const GrowthLimit& limit,
                                Word word, TakeWord take);

  std::vector<Step> steps_;  // Sequences are flattened
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PRE_TOKENIZER_H_
