// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that BPE
// sees one by one. Immutable, thread-safe.

#ifndef TOKENIZER_PRE_TOKENIZER_H_
#define TOKENIZER_PRE_TOKENIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pattern.h"

namespace nacre::tokenizer {

// A stretch of text on its way to the model.
struct Word {
  std::string text;
  // So many of its bytes stem from the first character of the whole input:
  // more than one word has some if the normalizer expanded that character.
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

  // Cuts `word`, non-empty valid UTF-8. Errors: Regex::FindAll's.
  absl::StatusOr<std::vector<Word>> Apply(Word word) const;

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

  absl::Status AddSteps(const Json& json, const std::string& path, int depth);
  static absl::StatusOr<Step> ParseSplit(const Json& json,
                                         const std::string& path);
  static absl::StatusOr<Step> ParseByteLevel(const Json& json,
                                             const std::string& path);
  static absl::StatusOr<Step> ParseMetaspace(const Json& json,
                                             const std::string& path);
  static absl::Status ApplyStep(const Step& step, Word word,
                                std::vector<Word>* words);

  std::vector<Step> steps_;  // Sequences are flattened
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PRE_TOKENIZER_H_
