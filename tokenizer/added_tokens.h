// Tokens that are cut out of the text before the model sees it: special tokens
// and user-added words. Immutable after Create, thread-safe.

#ifndef TOKENIZER_ADDED_TOKENS_H_
#define TOKENIZER_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/prefix_trie.h"
#include "tokenizer/text_range.h"
#include "tokenizer/tokenizer_config.h"

namespace nacre::tokenizer {

// Longer tokens would make a search at every position slow.
inline constexpr size_t kMaxTokenBytes = 4096;

// An error unless a token has 1 to kMaxTokenBytes bytes.
absl::Status CheckTokenSize(absl::string_view content, absl::string_view path);

// Reads one entry of "added_tokens" or "added_tokens_decoder", without the id.
absl::StatusOr<AddedToken> ParseAddedToken(const Json& value,
                                           absl::string_view path);

// A stretch of the text: a token, or text for the model when id is -1.
struct TextSegment {
  size_t begin;  // bytes
  size_t end;
  int32_t id;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `normalize` is applied to the content of the normalized tokens. Tokens that
  // are empty afterwards are never found.
  AddedTokens(std::vector<AddedToken> tokens,
              const std::function<std::string(absl::string_view)>& normalize);

  // Which of the two kinds of tokens to look for.
  enum class Pass { kRaw, kNormalized };

  // Cuts valid UTF-8 `text` at the tokens of a pass: leftmost match first, of
  // several the longest. With `parse_special` off special tokens stay text. Nor
  // is a token found whose first or last byte is in `user_text`
  // (EncodeOptions), if it is special or named as such (<|...|>, <｜...｜>). A
  // shorter token may be there then. Empty segments are left out. White space
  // that a token took along may also be in the segments after it, if a token in
  // it was found. The first of more than `max_tokens` tokens is the last
  // segment.
  std::vector<TextSegment> Split(absl::string_view text, Pass pass,
                                 bool parse_special, size_t max_tokens,
                                 absl::Span<const TextRange> user_text) const;

  // Whether the pass may find any.
  bool LooksFor(Pass pass) const { return !TrieOf(pass).empty(); }

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const PrefixTrie& TrieOf(Pass pass) const {
    return pass == Pass::kRaw ? raw_ : normalized_;
  }

  std::vector<AddedToken> tokens_;
  std::vector<bool> guarded_;  // each token: a user's text does not make it
  PrefixTrie raw_;             // values are indices into tokens_
  PrefixTrie normalized_;      // likewise
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_ADDED_TOKENS_H_
