// One sequence's blocks of a BlockPool: how many of their positions are filled
// and which are shared with other sequences. A shared block is never written:
// rolling back ends where sharing begins. Slots of tree nodes lie in blocks of
// their own, which are never shared, and no position is ever written there. A
// kept path is copied without overlap.
//
// Thread-compatible, together with its pool.

#ifndef MODEL_BLOCK_SEQUENCE_H_
#define MODEL_BLOCK_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/kv_layer.h"
#include "model/block_pool.h"
#include "model/language_model.h"
#include "model/tree_slots.h"

namespace nacre::model {

class BlockSequence : public Sequence {
 public:
  // With what Reserve gave for NumBlocks. `pool` outlives it.
  BlockSequence(BlockPool* pool, int max_length,
                BlockPool::Reservation reservation, int num_slots = 0,
                int prompt_positions = 0);
  ~BlockSequence() override;  // gives the blocks back
  BlockSequence(const BlockSequence&) = delete;
  BlockSequence& operator=(const BlockSequence&) = delete;

  int length() const override { return length_; }
  // Below what was shared: fatal.
  void Truncate(int length) override;
  int num_slots() const override { return slots_.count(); }
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots) override;
  void Share(absl::Span<const int32_t> token_ids) override;
  TakenOver TakeOver(absl::Span<const int32_t> token_ids,
                     int most_blocks) override;

  // Of its positions the first ones, which are computed as a prompt's
  // (kernels/prompt_products.h).
  int prompt_positions() const { return prompt_positions_; }

  // Blocks of `block_size` that such a sequence needs: positions and slots have
  // blocks of their own. max_length >= 1.
  static int NumBlocks(int max_length, int num_slots, int block_size);

  // Positions reserved; length() never passes it.
  int max_length() const { return max_length_; }
  // Marks `count` further positions as filled. Past max_length: fatal.
  void Append(int count);

  // As of TreeSlots. Slots that are to be filled in a step which does not come
  // to its end are emptied.
  absl::Status CheckNodes(absl::Span<const TreeNode> nodes, int length) const {
    return slots_.CheckNodes(nodes, length);
  }
  void FillSlot(const TreeNode& node) { slots_.Fill(node); }
  void EmptySlot(int slot) { slots_.Empty(slot); }
  // Where the path that ends with `slot` is kept, from its first slot on.
  void AppendPath(int slot, std::vector<kernels::KvSlot>* path) const;

  // While it is the same, this is the same sequence, and has but grown. No two
  // sequences of a pool ever have the same one.
  uint64_t version() const { return version_; }

  // Position i is in block block_table()[i / block size].
  const int32_t* block_table() const { return block_table_.data(); }

 protected:
  // Copies what the pool's memory has there; bookkeeping has no memory.
  virtual void Move(absl::Span<const kernels::KvMove> moves) {
    static_cast<void>(moves);
  }

 private:
  // Where the pool keeps a slot, and a position.
  kernels::KvSlot SlotAt(int slot) const;
  kernels::KvSlot PositionAt(int position) const;

  // What a block that comes next is published after.
  BlockPool::Node parent() const {
    return BlockPool::Before(
        node_, blocks_->PromptPositionsOf(shared_blocks_, prompt_positions_));
  }

  // Token ids of block `index`.
  absl::Span<const int32_t> BlockOf(absl::Span<const int32_t> token_ids,
                                    int index) const;

  BlockPool* const blocks_;
  const int max_length_;
  const int prompt_positions_;
  int length_;
  uint64_t version_;
  std::vector<int32_t> block_table_;  // of positions, and after them slots
  int first_slot_block_;              // in block_table_
  TreeSlots slots_;
  int shared_blocks_;     // from the front: published, or taken over
  BlockPool::Node node_;  // of the last of them
};

}  // namespace nacre::model

#endif  // MODEL_BLOCK_SEQUENCE_H_
