// Which ids of one tokenizer are which of another, so that a draft can serve a
// target whose vocabulary is not its own. It is fed its own ids for the
// target's, and draws the target's. What is drafted never decides what is
// emitted, so a bad match costs time and no token.

#ifndef TOKENIZER_VOCABULARY_MAP_H_
#define TOKENIZER_VOCABULARY_MAP_H_

#include <cstdint>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

inline constexpr int32_t kNoId = -1;

struct VocabularyMap {
  // Of each of the target's ids, that which the draft is fed for it. It is the
  // one of the same text, else the last of those that spell it. [ids of the
  // target]
  std::vector<int32_t> fed;
  // ... and that of whose logit it has; kNoId: the draft never draws it. Each
  // of the draft's ids is there once at most.
  std::vector<int32_t> drawn;
  // Of the target's pieces of text, 0 to 1: those that the draft has, too.
  double share = 0;
};

// Ids are the same where they stand for the same text after other text. Special
// ones are where they have the same name or begin or end a text alike. Bytes
// that are no whole character are compared by their pieces, as they are
// written. Of ids that stand for the same text a byte token ("<0x41>") comes
// last, then the lowest comes first. Where one vocabulary is the beginning of
// the other, its ids are themselves. The target's ids are those of its
// tokenizer and, without a text, as many as `size` says: rows that its head has
// besides. Takes a second for 128,000 ids.
VocabularyMap MapVocabulary(const Tokenizer& target, const Tokenizer& draft,
                            int size = 0);

// Whether the ids that both have stand for the same pieces. No map is needed
// then if the draft's model has all of the target's ids.
bool HaveCommonIds(const Tokenizer& one, const Tokenizer& other);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_VOCABULARY_MAP_H_
