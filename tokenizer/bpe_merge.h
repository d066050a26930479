// The merge loop of byte-pair encoding, shared by both file formats. It has a
// linked list of symbols and a heap of candidate merges: O(n log n) in the
// symbols.

#ifndef TOKENIZER_BPE_MERGE_H_
#define TOKENIZER_BPE_MERGE_H_

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace nacre::tokenizer {

// A run of bytes of the text being encoded; size 0 once merged into its left
// neighbour. `prev` and `next` are indices, -1 at the ends.
struct Symbol {
  int32_t prev;
  int32_t next;
  uint32_t begin;  // bytes
  uint32_t size;   // bytes
  int32_t id;      // -1: none
  bool frozen = false;
};

struct Merge {
  double priority;  // the lowest goes first, ties the leftmost
  int32_t id;       // of the merged symbol
};

// Links `symbols` in order; the caller filled begin, size, id and frozen.
inline void LinkSymbols(std::vector<Symbol>& symbols) {
  const int32_t count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].prev = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
}

// Applies every merge that `find(left, right)` -> std::optional<Merge> allows,
// best first. Afterwards the list from index 0 holds the result.
template <typename FindMerge>
void MergeSymbols(std::vector<Symbol>& symbols, const FindMerge& find) {
  struct Candidate {
    double priority;
    int32_t left;
    int32_t id;
    uint32_t size;  // of both symbols when the candidate was made

    bool operator<(const Candidate& other) const {
      if (priority != other.priority) return priority > other.priority;
      return left > other.left;
    }
  };
  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate> agenda({}, std::move(storage));

  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const std::optional<Merge> merge = find(symbols[left], symbols[right]);
    if (!merge) return;
    agenda.push({merge->priority, left, merge->id,
                 symbols[left].size + symbols[right].size});
  };
  for (size_t i = 1; i < symbols.size(); ++i) {
    consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  }
  while (!agenda.empty()) {
    const Candidate best = agenda.top();
    agenda.pop();
    Symbol& left = symbols[best.left];
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    // Symbols only grow, so an equal size means that neither changed.
    if (left.size + right.size != best.size) continue;
    left.size = best.size;
    left.id = best.id;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].prev = best.left;
    consider(left.prev, best.left);
    consider(best.left, left.next);
  }
}

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_BPE_MERGE_H_
