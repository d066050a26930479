// The tree that a draft grows below the last committed token, where it may
// prepare more than one continuation.
//
// Its MAIN PATH goes from the root, the last committed token, always to the
// first child: what a chain is. Its keys and values lie at positions of the
// sequence, those of other nodes, the BRANCHES, in slots. Where the text goes
// on along a branch, that becomes the main path.
//
// A step EXPANDS nodes: it feeds each and learns its children. It takes the tip
// of the main path and the likeliest branches. Of all ways to spend the rows,
// that prepares the most tokens of the text to come.
//
// Numbers of nodes rise by one in the order in which they are made.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_DRAFT_TREE_H_
#define SPECULATION_DRAFT_TREE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "speculation/pipeline.h"
#include "speculation/ranks.h"
#include "speculation/token_tree.h"

namespace nacre::speculation {

class DraftTree {
 public:
  // The text so far has `length` tokens. Branches have `num_slots` slots.
  DraftTree(int length, int num_slots);

  struct Limits {
    int lead = 0;        // no node is deeper
    int max_length = 0;  // nor stands at this position or after it
    // log2 of the probability below which a branch is neither expanded nor
    // made, a first child excepted. Branches are made for less while there are
    // few: the likeliest have the room.
    float least_score = 0;
    absl::Span<const int32_t> end_ids;  // have no children
    // Null: the likeliest nodes. Else what is expanded, and made; no price.
    const TreeSpec* shape = nullptr;
  };

  // A node that a step feeds.
  struct Row {
    int number = 0;
    int32_t token_id = 0;  // of a branch
    int position = 0;
    // Of a branch, as of model::TreeNode. -1: at its position, or its parent at
    // one.
    int32_t slot = -1;
    int32_t parent_slot = -1;
    bool operator==(const Row&) const = default;
  };
  // Begins a step that expands at most `most` nodes. The tip of the main path,
  // if it is among them, is the first.
  void BeginStep(const Limits& limits, int most, std::vector<Row>* rows);
  // Whether BeginStep would find a row.
  bool WantsStep(const Limits& limits) const;
  // Only the tip: whether limits do not forbid to expand it.
  bool MayExpandTip(const Limits& limits) const;
  // The step did not end: nothing was fed.
  void AbandonStep();
  // Whether a row of the step would be of use were these the next tokens.
  bool KeepsStep(absl::Span<const int32_t> token_ids) const;

  // The best children of a node by rank; none: it gets none. The first kRanks
  // at most; of a shape of others kMaxShapeWidth.
  struct Children {
    absl::Span<const int32_t> token_ids;
    // Perturbed scores, which fall, and what they stand for: log2 of the
    // probability, <= 0.
    absl::Span<const float> scores;
    absl::Span<const float> log2_probabilities;
  };
  // What a row of the step gave. Nothing happens where a commit has dropped the
  // node. Adds the new nodes to `tail`, which is one of this tree's alone.
  void OnExpanded(int number, const Children& children, const Limits& limits,
                  absl::Span<const int32_t> text, Tail* tail);
  // Whether this row of the step is the tip: its first child goes on with the
  // main path.
  bool IsTipOfStep(int number) const;

  // The text goes on with these tokens.
  struct Walk {
    int matched = 0;  // of them, one below the other, had a node
    int on_main = 0;  // of these, the first ones on the main path
    // Where not all matched: whether the last that did had other children.
    bool rejected = false;
  };
  Walk Follow(absl::Span<const int32_t> token_ids);
  // Of the last Follow: the slots of the nodes that are to become positions, in
  // their order, after those on the main path.
  absl::Span<const int32_t> kept_slots() const { return kept_slots_; }
  // ... and of the tokens whose place had candidates: which was taken. Up to
  // the first that was not the likeliest.
  struct Judged {
    std::array<float, kRanks> scores;
    int count = 0;
    int rank = 0;  // 1 to kBeyond
    // The token taken had children here: the draft had drafted below it.
    bool prepared = false;
  };
  const std::vector<Judged>& judged() const { return judged_; }

  // Of the main path below the root.
  const std::vector<int32_t>& main_tokens() const { return main_tokens_; }
  // The tokens below the root down to a node, it included. None: the root, or
  // no node.
  void AppendPath(int number, std::vector<int32_t>* token_ids) const;
  const TokenTree& nodes() const { return tree_; }
  int free_slots() const { return static_cast<int>(free_slots_.size()); }

 private:
  struct Candidates {
    std::array<int32_t, kRanks> token_ids;
    std::array<float, kRanks> scores;
    int count = 0;  // 0: not known
  };
  // Of a node of tree_, by its index; or of the root.
  struct Drafted {
    int number = 0;  // 0: of a root that was no node
    int rank = 0;    // among its parent's candidates, from 0
    int32_t slot = -1;
    bool is_main = false;
    bool is_fed = false;
    bool is_in_step = false;
    Candidates candidates;
  };

  // Nodes that there may still be beside those that the main path needs.
  int Room(const Limits& limits) const;
  // log2 of the probability that a node must have now, where its step has
  // `step_rows` rows so far.
  float Price(const Limits& limits, int step_rows) const;
  // -1: the root.
  int Tip() const { return main_.empty() ? -1 : main_.back(); }
  Drafted& At(int index) { return index < 0 ? root_ : drafted_[index]; }
  const Drafted& At(int index) const {
    return index < 0 ? root_ : drafted_[index];
  }
  bool MayExpand(int index, const Limits& limits) const;
  // What the shape of others says.
  bool ShapeExpands(int index, const TreeSpec& shape) const;
  bool ShapeMakes(int parent, int rank, const Children& children,
                  const TreeSpec& shape) const;
  // Of an index: from the root to it, ranks among candidates.
  std::vector<int> RanksTo(int index) const;
  bool MayExpandBranch(int index, const Limits& limits, int step_rows) const;
  // -2: none.
  int IndexOf(int number) const;
  void AddChild(int parent, int rank, int32_t token_id, float score,
                absl::Span<const int32_t> text, Tail* tail);
  void Judge(absl::Span<const int32_t> token_ids, const std::vector<int>& path,
             bool rejected);
  // The slots of the walked branches, and of those that go on from them.
  void KeepSlots(const std::vector<int>& path, const Walk& walk, bool goes_on);
  // After Reroot: keeps what tree_ has kept, and finds the main path in it.
  void KeepDrafted();

  TokenTree tree_;
  Drafted root_;
  std::vector<Drafted> drafted_;  // of tree_.nodes()
  std::vector<int> main_;         // the main path, as indices
  std::vector<int32_t> main_tokens_;
  std::vector<int32_t> free_slots_;
  std::vector<int32_t> kept_slots_;
  std::vector<Judged> judged_;
  std::vector<int> likeliest_;  // scratch of BeginStep
  int newest_number_ = 0;
  int step_rows_ = 0;  // of the latest step
};

}  // namespace nacre::speculation

#endif  // SPECULATION_DRAFT_TREE_H_
