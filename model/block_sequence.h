// One sequence's blocks of a BlockPool: how many of their positions are filled
// and which are shared with other sequences. A shared block is never written:
// rolling back ends where sharing begins.
//
// Thread-compatible, together with its pool.

#ifndef MODEL_BLOCK_SEQUENCE_H_
#define MODEL_BLOCK_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/block_pool.h"
#include "model/language_model.h"

namespace nacre::model {

class BlockSequence : public Sequence {
 public:
  // With what Reserve gave for max_length positions. `pool` outlives it.
  BlockSequence(BlockPool* pool, int max_length,
                BlockPool::Reservation reservation);
  ~BlockSequence() override;  // gives the blocks back
  BlockSequence(const BlockSequence&) = delete;
  BlockSequence& operator=(const BlockSequence&) = delete;

  int length() const override { return length_; }
  // Below what was shared: fatal.
  void Truncate(int length) override;
  void Share(absl::Span<const int32_t> token_ids) override;
  int TakeOver(absl::Span<const int32_t> token_ids) override;

  // Positions reserved; length() never passes it.
  int max_length() const { return max_length_; }
  // Marks `count` further positions as filled. Past max_length: fatal.
  void Append(int count);

  // While it is the same, this is the same sequence, and has but grown. No two
  // sequences of a pool ever have the same one.
  uint64_t version() const { return version_; }

  // Position i is in block block_table()[i / block size].
  const int32_t* block_table() const { return block_table_.data(); }

 private:
  // Token ids of block `index`.
  absl::Span<const int32_t> BlockOf(absl::Span<const int32_t> token_ids,
                                    int index) const;

  BlockPool* const blocks_;
  const int max_length_;
  int length_;
  uint64_t version_;
  std::vector<int32_t> block_table_;
  int shared_blocks_;     // from the front: published, or taken over
  BlockPool::Node node_;  // of the last of them
};

}  // namespace nacre::model

#endif  // MODEL_BLOCK_SEQUENCE_H_
