// Where a text has gone on before: finds the longest end of a text that also
// occurs in remembered texts, and what followed there. The texts are of owners:
// one owner's are never found for another's.
//
// Of each position three chains lead to earlier ones after the same last 8, 4
// and 2 tokens (hash chains as of the LZ77 compressors). All texts lie in one
// ring: a text that needs room takes that of the oldest. So a token costs
// kBytesPerToken and a few dozen nanoseconds, however much is remembered.
//
// Suffix decoding: Oliaro et al., arXiv:2411.04975; prompt lookup: Saxena,
// github.com/apoorvumang/prompt-lookup-decoding.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_SUFFIX_INDEX_H_
#define SPECULATION_SUFFIX_INDEX_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"

namespace nacre::speculation {

// Whose texts: what stands for one client and for no other. All zeros: no
// name.
using TextOwner = std::array<uint64_t, 2>;

class SuffixIndex {
 public:
  static constexpr int kMinMatch = 2;
  static constexpr int kMaxMatch = 32;  // longer ones count as this
  // Most occurrences that Find looks at.
  static constexpr int kMaxOccurrences = 32;
  // At most, of the index's own memory. (A text costs kBytesPerText beside.)
  static constexpr int64_t kBytesPerToken = 32;
  static constexpr int64_t kBytesPerText = 32;
  static constexpr int64_t kMaxTokens = int64_t{1} << 31;

  // Room for so many tokens, at most kMaxTokens.
  explicit SuffixIndex(int64_t capacity);

  // Begins a text that will have at most `room` tokens, no more than the
  // capacity. Drops the oldest texts that are in its way.
  void Begin(const TextOwner& owner, int64_t room);
  // To the text that was begun last: no more than its room in all.
  void Append(absl::Span<const int32_t> token_ids);
  // Begins a text and appends to it; of a longer one than the capacity the end.
  void Add(const TextOwner& owner, absl::Span<const int32_t> token_ids);

  // What follows one occurrence: at least one token. Valid until the next call
  // that is not const.
  struct Occurrence {
    absl::Span<const int32_t> next;
    int match = 0;  // tokens that are the same before it, up to kMaxMatch
  };
  // Looks for the owner's newest kMaxOccurrences that match in the last 8
  // tokens of `context`, else 4, else 2. Finds those of them with the longest
  // match, the newest first. What follows has at most `max_next` tokens. Where
  // many texts share a hash, old occurrences may be missed.
  void Find(const TextOwner& owner, absl::Span<const int32_t> context,
            int max_next, std::vector<Occurrence>* found) const;

  int64_t capacity() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t num_texts() const { return static_cast<int64_t>(texts_.size()); }

 private:
  static constexpr std::array<int, 3> kGrams = {8, 4, 2};
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Text {
    TextOwner owner;
    uint32_t begin = 0;
    uint32_t end = 0;  // past its last token
  };
  // The chains of one length of gram.
  struct Chains {
    std::vector<uint32_t> heads;     // by hash: the newest position
    std::vector<uint32_t> previous;  // of each position
  };

  uint32_t HashOf(const TextOwner& owner, const int32_t* end, int gram) const;
  void DropOldest();
  void MakeRoom(uint32_t room);
  // nullptr: what was there has been dropped.
  const Text* TextAt(uint32_t position) const;
  int MatchAt(const Text& text, uint32_t position,
              absl::Span<const int32_t> context) const;
  void Walk(int level, const TextOwner& owner,
            absl::Span<const int32_t> context, int max_next,
            std::vector<Occurrence>* found) const;

  std::vector<int32_t> tokens_;
  std::vector<uint32_t> text_of_;  // of each position, the number of its text
  std::array<Chains, kGrams.size()> chains_;
  uint32_t hash_mask_ = 0;
  std::deque<Text> texts_;
  uint32_t oldest_ = 0;    // the number of the first of texts_
  uint32_t room_end_ = 0;  // of the newest text
};

}  // namespace nacre::speculation

#endif  // SPECULATION_SUFFIX_INDEX_H_
