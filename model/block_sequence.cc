#include "model/block_sequence.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::model {

int BlockSequence::NumBlocks(int max_length, int num_slots, int block_size) {
  return (max_length - 1) / block_size + 1 +
         (num_slots + block_size - 1) / block_size;
}

BlockSequence::BlockSequence(BlockPool* pool, int max_length,
                             BlockPool::Reservation reservation, int num_slots,
                             int prompt_positions)
    : blocks_(pool),
      max_length_(max_length),
      prompt_positions_(prompt_positions),
      length_(reservation.num_cached * pool->block_size()),
      version_(pool->NewVersion()),
      block_table_(std::move(reservation.blocks)),
      first_slot_block_(NumBlocks(max_length, 0, pool->block_size())),
      slots_(num_slots),
      shared_blocks_(reservation.num_cached),
      node_(reservation.node) {}

BlockSequence::~BlockSequence() { blocks_->Release(block_table_); }

void BlockSequence::Truncate(int length) {
  NACRE_CHECK(length >= 0, "truncation to a negative length");
  NACRE_CHECK(length >= shared_blocks_ * blocks_->block_size(),
              "truncation of a shared block");
  if (length >= length_) return;
  length_ = length;
  slots_.Truncate(length);
  version_ = blocks_->NewVersion();
}

kernels::KvSlot BlockSequence::PositionAt(int position) const {
  const int size = blocks_->block_size();
  return block_table_[static_cast<size_t>(position / size)] * size +
         position % size;
}

kernels::KvSlot BlockSequence::SlotAt(int slot) const {
  return PositionAt(first_slot_block_ * blocks_->block_size() + slot);
}

void BlockSequence::AppendPath(int slot,
                               std::vector<kernels::KvSlot>* path) const {
  const auto begin = static_cast<std::ptrdiff_t>(path->size());
  slots_.AppendPath(slot, path);
  std::transform(path->begin() + begin, path->end(), path->begin() + begin,
                 [this](int32_t on_path) { return SlotAt(on_path); });
}

absl::Status BlockSequence::KeepPath(int length,
                                     absl::Span<const int32_t> slots) {
  if (length < length_) return absl::OkStatus();
  const int count = static_cast<int>(slots.size());
  if (length > length_ || count > max_length_ - length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a path of ", count, " nodes after ", length,
                     " positions, the sequence holds ", length_,
                     " and has room for ", max_length_));
  }
  if (absl::Status status = slots_.CheckPath(length, slots); !status.ok()) {
    return status;
  }
  if (slots.empty()) return absl::OkStatus();
  std::vector<kernels::KvMove> moves;
  for (const int32_t slot : slots) {
    moves.push_back({SlotAt(slot), PositionAt(length_++)});
  }
  Move(moves);
  slots_.KeepPath(slots);
  version_ = blocks_->NewVersion();
  return absl::OkStatus();
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
    node_ = blocks_->Publish(parent(), BlockOf(token_ids, shared_blocks_),
                             block_table_[static_cast<size_t>(shared_blocks_)]);
  }
}

TakenOver BlockSequence::TakeOver(absl::Span<const int32_t> token_ids,
                                  int most_blocks) {
  const int size = blocks_->block_size();
  const int end = std::min(static_cast<int>(token_ids.size()) - 1, max_length_);
  TakenOver taken;
  // A block that is filled but not shared yet stays its own.
  for (int next = (shared_blocks_ + 1) * size; length_ < next && next <= end;
       next += size) {
    // What it had begun of that block is given up.
    int32_t& block = block_table_[static_cast<size_t>(shared_blocks_)];
    const auto ids = BlockOf(token_ids, shared_blocks_);
    if (const auto shared = blocks_->TakePublished(parent(), ids)) {
      blocks_->Release({&block, 1});
      block = shared->block;
      node_ = shared->node;
    } else if (taken.blocks >= most_blocks) {
      taken.more = blocks_->IsKept(parent(), ids);
      break;
    } else if (const auto brought = blocks_->Bring(parent(), ids, block)) {
      node_ = *brought;
      taken.brought += next - length_;
      ++taken.blocks;
    } else {
      break;
    }
    ++shared_blocks_;
    taken.positions += next - length_;
    length_ = next;
  }
  return taken;
}

void BlockSequence::Append(int count) {
  NACRE_CHECK(count >= 0 && count <= max_length_ - length_,
              "a sequence passes its reserved length");
  length_ += count;
}

}  // namespace nacre::model
