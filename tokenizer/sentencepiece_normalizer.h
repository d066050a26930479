// SentencePiece's normalization: the compiled character map (nmt_nfkc and the
// like), white space, the dummy prefix. Immutable, thread-safe.

#ifndef TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
#define TOKENIZER_SENTENCEPIECE_NORMALIZER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/prefix_trie.h"
#include "tokenizer/sentencepiece_model.h"

namespace nacre::tokenizer {

// What stands for a space in pieces: U+2581.
inline constexpr absl::string_view kSpaceSymbol = "\xE2\x96\x81";

class SentencePieceNormalizer {
 public:
  // DATA_LOSS: precompiled_charsmap is not a trie followed by its texts, of
  // kMaxRuleBytes each.
  static constexpr size_t kMaxRuleBytes = 1024;
  static absl::StatusOr<SentencePieceNormalizer> Create(
      SentencePieceNormalization spec);

  // Normalizes `text`, each invalid byte as U+FFFD. Keys of `user_defined` are
  // kept as they are. The dummy prefix is added when the model asks for it and
  // `allow_dummy_prefix`. RESOURCE_EXHAUSTED: more would come of it than
  // growth_limit.h says.
  absl::StatusOr<std::string> Normalize(absl::string_view text,
                                        const PrefixTrie& user_defined,
                                        bool allow_dummy_prefix) const;

 private:
  struct Step {
    absl::string_view output;
    size_t consumed;  // bytes of the input, > 0
  };
  // What the beginning of non-empty `text` becomes.
  Step NormalizePrefix(absl::string_view text,
                       const PrefixTrie& user_defined) const;
  // Longest key of the character map, 0 when none; its text in *output.
  size_t LongestRule(absl::string_view text, absl::string_view* output) const;

  SentencePieceNormalization spec_;
  std::vector<uint32_t> units_;  // the double array, empty: identity
  std::string outputs_;          // NUL-terminated texts
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
