// What the slots of a sequence hold: nodes of a token tree, each below its
// parent. The root of a path is after a position of the sequence. Bookkeeping
// only: where slots lie is the sequence's matter.
//
// What grows the tree chooses slots and reuses them. A slot that was filled
// again breaks the paths through it, and so does a position that was forgotten:
// they are refused, not read.
//
// Thread-compatible.

#ifndef MODEL_TREE_SLOTS_H_
#define MODEL_TREE_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/language_model.h"

namespace nacre::model {

class TreeSlots {
 public:
  explicit TreeSlots(int count);  // all empty

  int count() const { return static_cast<int>(slots_.size()); }

  // Whether these nodes can be fed in this order to a sequence that then holds
  // `length` positions. INVALID_ARGUMENT (with the value and the limit):
  // - a slot out of range or filled twice;
  // - a parent that is no whole path, no slot of an earlier node and no
  //   position;
  // - a position that does not come after the parent's.
  absl::Status CheckNodes(absl::Span<const TreeNode> nodes, int length) const;

  // A node that CheckNodes accepted.
  void Fill(const TreeNode& node);
  // Its position was forgotten, or its keys and values never came.
  void Empty(int slot);
  // Positions >= length are forgotten, with the paths after them.
  void Truncate(int length);

  // The slots of the path that ends with `slot`, which is filled, from the one
  // after a position on.
  void AppendPath(int slot, std::vector<int32_t>* slots) const;

  // Whether `slots` are a path after `length` positions. INVALID_ARGUMENT.
  absl::Status CheckPath(int length, absl::Span<const int32_t> slots) const;
  // The nodes of such a path become positions. Their slots are then empty, and
  // the nodes below them follow positions.
  void KeepPath(absl::Span<const int32_t> slots);

 private:
  struct Slot {
    uint64_t fill = 0;  // never used twice; 0: empty
    int position = 0;
    int32_t parent = kNoSlot;
    uint64_t parent_fill = 0;
  };

  const Slot& At(int32_t slot) const {
    return slots_[static_cast<size_t>(slot)];
  }
  absl::Status CheckRange(int32_t slot) const;
  // Whether the path to `slot` is whole, and passes none of `refilled`.
  bool IsWhole(int32_t slot, absl::Span<const TreeNode> refilled) const;
  // Of nodes[index], whose slot is in range.
  absl::Status CheckParent(absl::Span<const TreeNode> nodes, size_t index,
                           int length) const;

  std::vector<Slot> slots_;
  uint64_t last_fill_ = 0;
};

}  // namespace nacre::model

#endif  // MODEL_TREE_SLOTS_H_
