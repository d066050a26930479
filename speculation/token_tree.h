// What a draft proposes beyond one session's committed text: a tree rooted at
// the last committed token. Target session and draft session each hold one.
//
// A node stands for a text: the committed tokens, then the path from the root.
// It may have several numbers, since several messages can propose the same
// text. The draft chooses the numbers; they rise, and none is used twice. Where
// the text goes on, Reroot keeps the subtree of the last committed token. The
// numbers on the way stay known as committed positions, so a node that comes
// late still finds its parent. It is compared with the committed token that
// stands there. (Dropping such nodes starves a target whose messages travel
// longer than its steps take.)
//
// Another drafter may propose nodes that have no number: local ones. They stand
// below the numbered nodes, and a message that proposes the same text gives
// them its numbers.
//
// Pure: no I/O, no clock, no threads. Indices are valid until the next Reroot,
// DropLocal or Clear.

#ifndef SPECULATION_TOKEN_TREE_H_
#define SPECULATION_TOKEN_TREE_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {

class TokenTree {
 public:
  static constexpr int kRoot = -1;  // as an index
  // Most nodes with a number, most numbers that may be known at a time, and
  // most local nodes.
  static constexpr int kMaxNodes = kMaxTailNodes;
  static constexpr int kMaxNumbers = 2 * kMaxNodes;
  static constexpr int kMaxLocal = kMaxWindow;

  struct Node {
    int32_t token_id = 0;
    int parent = kRoot;     // index; a parent's is below its children's
    int depth = 1;          // of a child of the root
    float score = 0;        // log2 P(token | the parent's text), <= 0
    float path_score = 0;   // the sum of the scores from the root on
    bool is_local = false;  // AddLocal's: it has no number
    bool operator==(const Node&) const = default;
  };

  // The text so far has `length` tokens, >= 1.
  explicit TokenTree(int length);

  // So many nodes will need no more memory.
  void Reserve(int num_nodes);

  // A node as a message names it.
  struct Proposal {
    int number = 0;  // 1 to kMaxNode
    // A number below, or 0: the last token of the text of `base_length`.
    int parent = 0;
    int base_length = 0;
    int32_t token_id = 0;
    float score = 0;
  };
  enum class Outcome {
    kAdded,
    kMerged,        // an equal sibling exists: it has this number, too, and the
                    // larger score
    kCommitted,     // the committed token at its place is the same
    kContradicted,  // ... is another one: dropped
    kStale,         // its parent was dropped, or its number had its turn
    kRepeated,      // known already, with this parent and token
    // Number out of range or known otherwise, parent no lower number, base
    // beyond the text, score no logarithm of a probability, too many.
    kMalformed,
  };
  // `text` is the committed text: length() tokens. All but kAdded, kMerged and
  // kCommitted change nothing.
  Outcome Add(const Proposal& proposal, absl::Span<const int32_t> text);

  // A local node below `parent` (index, or kRoot), or the equal sibling, which
  // keeps the larger score. nullopt: there are too many. score <= 0.
  absl::optional<int> AddLocal(int parent, int32_t token_id, float score);
  void DropLocal();
  bool has_local() const { return num_local_ > 0; }

  // The text goes on with these tokens. Returns how many of them had a node,
  // one below the other; where that is not all of them, no node is left.
  int Reroot(absl::Span<const int32_t> token_ids);
  // No message names a text shorter than this any more: numbers of shorter ones
  // are forgotten.
  void Forget(int base_length);
  // Another draft numbers anew: everything is dropped.
  void Clear();

  int length() const { return length_; }
  absl::Span<const Node> nodes() const { return nodes_; }
  // kRoot has no node: nullopt where no child of `parent` has the token.
  absl::optional<int> Child(int parent, int32_t token_id) const;
  bool HasChild(int parent) const;
  // From the root always to the child of the largest path score, as deep as
  // that goes, by index; of equal ones the lower index.
  void BestPath(std::vector<int>* indices) const;
  int BestDepth() const;
  // The `count` nodes of the largest path scores among those of at most
  // `max_depth`, or all of them, by index. No node comes before its parent, and
  // the parent of each is among them. Of equal ones the lower index.
  void Best(int count, int max_depth, std::vector<int>* indices) const;

  // What a number stands for: the index of its node, or for a committed
  // position the length of the text that ends there. Neither: not known.
  struct Place {
    absl::optional<int> index;
    int text_length = 0;
  };
  absl::optional<Place> Find(int number) const;
  // The lowest number of a node; 0: it is local.
  int NumberOf(int index) const;

 private:
  // Of a number. Sorted, since numbers rise.
  struct Name {
    int number = 0;
    int index = kRoot;    // kRoot: a committed position
    int text_length = 0;  // of that
  };

  static constexpr int kDropped = -2;  // as an index

  const Name* FindName(int number) const;
  Outcome AddBelow(int parent, const Proposal& proposal);
  void Append(int parent, int32_t token_id, float score);
  void Raise(int index, float score);
  Outcome Compare(int text_length, const Proposal& proposal,
                  absl::Span<const int32_t> text);
  Outcome Repeat(const Name& name, const Proposal& proposal,
                 absl::Span<const int32_t> text) const;
  absl::optional<Place> ParentOf(const Proposal& proposal) const;
  // Drops all nodes but those below the node `root`; kDropped: all.
  void KeepBelow(int root);
  // Forgets the numbers of dropped nodes, gives the others their new indices.
  void MoveNames();
  void SumScores();

  int length_;
  int newest_number_ = 0;
  int num_local_ = 0;
  std::vector<Node> nodes_;
  std::vector<Name> names_;
  std::vector<int> moved_;  // scratch: the new index of each node
};

}  // namespace nacre::speculation

#endif  // SPECULATION_TOKEN_TREE_H_
