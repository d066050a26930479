// What a draft has sent of one session, at its target: a token tree, and how it
// compares with what the target committed.
//
// A chain names no nodes: this gives them numbers, in the order in which they
// come. Nodes of a tree have those of the draft. A draft speaks one way for an
// epoch.
//
// The target's own nodes, of suffixes (suffix_draft.h), stand in the same tree
// until the text goes on. They are in no account and change no standing.
//
// What comes late, below a token that is committed by now, is compared with the
// token committed there (speculation/token_tree.h).
//
// Pure: no I/O, no clock, no threads. `text` is always the committed text.

#ifndef SPECULATION_DRAFT_BUFFER_H_
#define SPECULATION_DRAFT_BUFFER_H_

#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/pipeline.h"
#include "speculation/suffix_draft.h"
#include "speculation/token_tree.h"

namespace nacre::speculation {

class DraftBuffer {
 public:
  // The text has `length` tokens, and so many are known to the draft. Tokens
  // come with their distributions where `verification` is the ratio test.
  DraftBuffer(Verification verification, int length);

  // Another draft, opened with the first `opened_length` tokens of the text:
  // all of the one before is dropped.
  void Attach(int opened_length);

  // How the text's last token stands to the draft's.
  enum class Standing {
    kMismatch,  // it has no node, or an earlier one had none
    kFlow,      // it has a node
    kOpen,      // it may still get one
  };
  Standing standing() const { return standing_; }

  enum class Outcome {
    kApplied,
    kRepeated,  // an older message once more
    kMismatch,  // a late token of it is not what was committed there
    kStale,     // built on what was dropped, or older than the newest
    kMalformed,
  };
  // A message of the draft, of the current epoch, with a base_length of at most
  // the text's. The last two change nothing, but that the nodes of a tree stay
  // that come before the first malformed one.
  Outcome Add(const Tail& tail, absl::Span<const int32_t> text);

  // The target's own nodes, in place of those before: each below its parent.
  void SetLocal(absl::Span<const SuffixNode> nodes);
  void DropLocal() { SetLocal({}); }

  // The text was committed from `base_length` on. Drops the target's own nodes.
  // The first `count` of the new tokens are in the account. Returns whether a
  // token differed.
  bool OnCommitted(int base_length, int count, absl::Span<const int32_t> text);

  // The text left the draft's main path before it had this length, for a branch
  // or another token; 0: it did not. Where the draft said that this path ends,
  // knowing less, it will go on.
  int left_main_length() const { return left_main_length_; }

  // Of the positions since the last call. verified: the draft had a token
  // there, all before it being right. accepted: it was the right one, too.
  struct Account {
    int verified = 0;
    int accepted = 0;
  };
  Account TakeAccount();

  // What became of nodes that came, tokens of chains among them.
  struct Fates {
    int64_t placed = 0;        // in the tree
    int64_t committed = 0;     // late: the text goes on with it already
    int64_t contradicted = 0;  // late: another token is committed there
    int64_t stale = 0;         // below one that was dropped, or out of turn
  };
  // Of those since the last call.
  Fates TakeFates() { return std::exchange(fates_, Fates()); }

  const TokenTree& tree() const { return tree_; }
  // From the root always to the likeliest child, as indices of nodes.
  const std::vector<int>& best_path() const { return best_path_; }
  int depth() const { return static_cast<int>(best_path_.size()); }
  // Whether the draft has a token for what comes next.
  bool has_draft_tail() const;
  // What the best path is worth to a gate: its depth, where the target's own
  // nodes count as what they are likely to give.
  int worth() const;
  bool speaks_tree() const { return speaks_ == Speaks::kTree; }
  // The length of the text that ends with the token sent last.
  int end_length() const { return end_length_; }
  // What the token of a node was drawn from, under the ratio test.
  bool has_distributions() const {
    return verification_ == Verification::kRatio;
  }
  const DraftDistribution& distribution(int node) const {
    return distributions_[static_cast<size_t>(node)];
  }

 private:
  enum class Speaks { kNothing, kChain, kTree };

  // The base of a draft's messages never falls, nor their end while the base
  // stays, nor the mark while both do.
  struct Order {
    int base_length = -1;
    int end = -1;  // of a chain a position, of a tree a number
    StopMark stop = StopMark::kNone;
    auto operator<=>(const Order&) const = default;
  };

  Outcome AddChain(const Tail& tail, absl::Span<const int32_t> text);
  Outcome AddNodes(const Tail& tail, absl::Span<const int32_t> text);
  bool HasDistributions(const Tail& tail) const;
  bool IsWellFormedTree(const Tail& tail) const;
  TokenTree::Outcome AddNode(const TokenTree::Proposal& proposal,
                             absl::Span<const int32_t> text);
  // A token for the position `place` has been compared.
  void Count(int place, bool equal);
  void Know(int length);

  Verification verification_;
  TokenTree tree_;
  std::vector<int> best_path_;
  std::vector<DraftDistribution> distributions_;  // of each node of a chain
  std::vector<absl::optional<int>> local_;        // scratch of SetLocal
  Standing standing_ = Standing::kMismatch;
  Speaks speaks_ = Speaks::kNothing;
  Order newest_;
  int number_ = 0;      // of the newest token of a chain
  int end_length_ = 0;  // see end_length()
  // So much of the text the draft is known to have.
  int known_length_ = 0;
  int mismatch_place_ = -1;  // where standing_ is kMismatch
  int left_main_length_ = 0;
  // Positions below are in the account, as verified and as accepted.
  int verified_length_ = 0;
  int accepted_length_ = 0;
  Account account_;
  Fates fates_;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_DRAFT_BUFFER_H_
