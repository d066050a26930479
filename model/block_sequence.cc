#include "model/block_sequence.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::model {

BlockSequence::BlockSequence(BlockPool* pool, int max_length,
                             BlockPool::Reservation reservation)
    : blocks_(pool),
      max_length_(max_length),
      length_(reservation.num_cached * pool->block_size()),
      version_(pool->NewVersion()),
      block_table_(std::move(reservation.blocks)),
      shared_blocks_(reservation.num_cached),
      node_(reservation.node) {}

BlockSequence::~BlockSequence() { blocks_->Release(block_table_); }

void BlockSequence::Truncate(int length) {
  NACRE_CHECK(length >= 0, "truncation to a negative length");
  NACRE_CHECK(length >= shared_blocks_ * blocks_->block_size(),
              "truncation of a shared block");
  if (length >= length_) return;
  length_ = length;
  version_ = blocks_->NewVersion();
}

absl::Span<const int32_t> BlockSequence::BlockOf(
    absl::Span<const int32_t> token_ids, int index) const {
  const size_t size = static_cast<size_t>(blocks_->block_size());
  return token_ids.subspan(static_cast<size_t>(index) * size, size);
}

void BlockSequence::Share(absl::Span<const int32_t> token_ids) {
  if (!blocks_->caches()) return;
  const int size = blocks_->block_size();
  // Not what is settled but not filled yet.
  const int end = std::min(static_cast<int>(token_ids.size()), length_);
  for (; (shared_blocks_ + 1) * size <= end; ++shared_blocks_) {
    node_ = blocks_->Publish(node_, BlockOf(token_ids, shared_blocks_),
                             block_table_[static_cast<size_t>(shared_blocks_)]);
  }
}

int BlockSequence::TakeOver(absl::Span<const int32_t> token_ids) {
  const int size = blocks_->block_size();
  const int end = std::min(static_cast<int>(token_ids.size()) - 1, max_length_);
  const int length = length_;
  // A block that is filled but not shared yet stays its own.
  for (int next = (shared_blocks_ + 1) * size; length_ < next && next <= end;
       next += size) {
    const auto taken =
        blocks_->TakePublished(node_, BlockOf(token_ids, shared_blocks_));
    if (!taken.has_value()) break;
    // What it had begun of that block is given up.
    int32_t& block = block_table_[static_cast<size_t>(shared_blocks_)];
    blocks_->Release({&block, 1});
    block = taken->block;
    node_ = taken->node;
    ++shared_blocks_;
    length_ = next;
  }
  return length_ - length;
}

void BlockSequence::Append(int count) {
  NACRE_CHECK(count >= 0 && count <= max_length_ - length_,
              "a sequence passes its reserved length");
  length_ += count;
}

}  // namespace nacre::model
