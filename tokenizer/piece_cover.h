// How few tokens a text can have, found without the work of merging it.
//
// Each token stands for a piece of the text. So a text has at least as many
// tokens as the fewest pieces that cover it, whatever the merges choose.

#ifndef TOKENIZER_PIECE_COVER_H_
#define TOKENIZER_PIECE_COVER_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "tokenizer/prefix_trie.h"

namespace nacre::tokenizer {

// Immutable after the last Add; then thread-safe.
class PieceCover {
 public:
  // What becomes of characters that are no piece.
  enum class Unknown {
    kTokenEach,  // at least one token of each
    kFree,       // any number of them may be one token, or none
  };

  explicit PieceCover(Unknown unknown = Unknown::kFree) : unknown_(unknown) {}

  // A token may stand for `piece` (not empty).
  void Add(absl::string_view piece) { pieces_.Add(piece, 0); }

  // Whether `text` has more than `most` tokens for certain. It looks at no more
  // of the text than that takes.
  bool NeedsMore(absl::string_view text, size_t most) const;

 private:
  Unknown unknown_;
  PrefixTrie pieces_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PIECE_COVER_H_
