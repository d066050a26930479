// A draft that costs next to nothing. It knows what followed when the end of a
// text occurred before, in this text or in remembered ones (suffix_index.h). It
// gives that as nodes of a token tree (token_tree.h).
//
// How much a node is to be trusted is learned from the session itself, by the
// length of the match. Each proposal is compared with what was committed,
// whether a step verified it or not.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_SUFFIX_DRAFT_H_
#define SPECULATION_SUFFIX_DRAFT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "speculation/suffix_account.h"
#include "speculation/suffix_index.h"

namespace nacre::speculation {

// How often what followed a match follows again, by the length of the match.
class SuffixTrust {
 public:
  SuffixTrust();

  // In (0, 1).
  double At(int match) const;
  void Add(int match, bool hit);

 private:
  // Of matches of 2 and 3 tokens, 4 to 7, 8 to 15, 16 to 31, 32.
  static constexpr int kClasses = 5;
  struct Count {
    double hits = 0;
    double trials = 0;
  };
  static int ClassOf(int match);

  std::array<Count, kClasses> counts_;
};

// A node of the target's own: of suffixes, or of heads (head_draft.h).
struct SuffixNode {
  int32_t token_id = 0;
  int parent = -1;  // index; a parent comes before its children; -1: root
  int match = 0;    // of suffixes: tokens that match before it
  double probability = 0;  // that the text goes on down to it
  double given_parent = 0;
};

struct SuffixLimits {
  int max_nodes = 0;
  int max_depth = 0;
  double least_probability = 0;
  bool is_chain = false;  // one child a node, the likeliest
};

// The likeliest nodes of the tree of what followed the occurrences, the
// likeliest first. P(node) = P(parent) * the share of the occurrences that go
// on so * trust in a match that is longer by the nodes before.
void GrowSuffixTree(absl::Span<const SuffixIndex::Occurrence> occurrences,
                    const SuffixTrust& trust, const SuffixLimits& limits,
                    std::vector<SuffixNode>* nodes);

// Of nodes, the likeliest first, those that are worth a row which costs so
// much, in steps; none where the account is empty.
absl::Span<const SuffixNode> WorthARow(absl::Span<const SuffixNode> nodes,
                                       const SuffixAccount& account,
                                       double row_price);

// How many of these tokens, the first ones, are a path of the nodes.
int NumSaid(absl::Span<const SuffixNode> nodes,
            absl::Span<const int32_t> token_ids);

// Of one session.
class SuffixDraft {
 public:
  // Of a text of at most `max_length` tokens, >= 1. `owner`: whose remembered
  // texts it may look at.
  SuffixDraft(const TextOwner& owner, int max_length);

  // The nodes after the end of `text`: all tokens so far, as of the last call
  // and on. Looks at the text and, where given, at `remembered`. Valid until
  // the next call.
  absl::Span<const SuffixNode> Propose(absl::Span<const int32_t> text,
                                       const SuffixIndex* remembered,
                                       const SuffixLimits& limits);

  const TextOwner& owner() const { return owner_; }
  const SuffixTrust& trust() const { return trust_; }

 private:
  // Compares the last proposal with what came.
  void Learn(absl::Span<const int32_t> text);

  const TextOwner owner_;
  SuffixIndex own_;
  int length_ = 0;  // of the text in own_
  SuffixTrust trust_;
  std::vector<SuffixIndex::Occurrence> found_;
  std::vector<SuffixIndex::Occurrence> remembered_;  // scratch
  std::vector<SuffixNode> nodes_;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_SUFFIX_DRAFT_H_
