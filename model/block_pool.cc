#include "model/block_pool.h"

#include "common/check.h"

namespace nacre::model {

BlockPool::BlockPool(int num_blocks, int block_size, bool cache)
    : block_size_(block_size),
      cache_(cache),
      blocks_(static_cast<size_t>(num_blocks)) {
  // Taken from the back: the first sequence gets block 0 and on.
  free_.reserve(blocks_.size());
  for (int i = num_blocks - 1; i >= 0; --i) free_.push_back(i);
}

absl::optional<BlockPool::Reservation> BlockPool::Reserve(
    int num_blocks, absl::Span<const int32_t> token_ids) {
  Reservation reservation;
  int num_unused = 0;  // of the cached ones
  const size_t block_size = static_cast<size_t>(block_size_);
  for (size_t begin = 0; begin + block_size < token_ids.size();
       begin += block_size) {
    const absl::Span<const int32_t> ids = token_ids.subspan(begin, block_size);
    const auto found =
        by_key_.find(Key(reservation.node, {ids.begin(), ids.end()}));
    if (found == by_key_.end() || reservation.num_cached == num_blocks) break;
    const Block& block = blocks_[static_cast<size_t>(found->second)];
    reservation.blocks.push_back(found->second);
    reservation.node = block.node;
    ++reservation.num_cached;
    if (block.uses == 0) ++num_unused;
  }
  if (num_blocks - reservation.num_cached > num_available() - num_unused) {
    return absl::nullopt;
  }
  for (const int32_t block : reservation.blocks) Use(block);
  while (static_cast<int>(reservation.blocks.size()) < num_blocks) {
    reservation.blocks.push_back(TakeFree());
    Use(reservation.blocks.back());
  }
  return reservation;
}

void BlockPool::Use(int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  if (block.uses++ == 0 && block.node != kRoot) unused_.erase(block.unused);
}

int32_t BlockPool::TakeFree() {
  if (free_.empty()) {
    const int32_t index = unused_.front();
    unused_.pop_front();
    Block& block = blocks_[static_cast<size_t>(index)];
    by_key_.erase(block.key);
    block = Block();
    return index;
  }
  const int32_t index = free_.back();
  free_.pop_back();
  return index;
}

BlockPool::Node BlockPool::Publish(Node parent,
                                   absl::Span<const int32_t> token_ids,
                                   int32_t index) {
  NACRE_CHECK(static_cast<int>(token_ids.size()) == block_size_,
              "only full blocks are published");
  if (!cache_) return kRoot;
  Block& block = blocks_[static_cast<size_t>(index)];
  NACRE_CHECK(block.uses > 0 && block.node == kRoot,
              "a block is published once, by who uses it");
  Key key(parent, {token_ids.begin(), token_ids.end()});
  const auto [entry, is_new] = by_key_.try_emplace(key, index);
  if (!is_new) return blocks_[static_cast<size_t>(entry->second)].node;
  block.key = std::move(key);
  block.node = next_node_++;
  return block.node;
}

absl::optional<BlockPool::Published> BlockPool::TakePublished(
    Node parent, absl::Span<const int32_t> token_ids) {
  const auto found =
      by_key_.find(Key(parent, {token_ids.begin(), token_ids.end()}));
  if (found == by_key_.end()) return absl::nullopt;
  Use(found->second);
  return Published{found->second,
                   blocks_[static_cast<size_t>(found->second)].node};
}

void BlockPool::Release(absl::Span<const int32_t> blocks) {
  // The last first: a prefix outlives what is built on it.
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    Block& block = blocks_[static_cast<size_t>(*it)];
    if (--block.uses > 0) continue;
    if (block.node == kRoot) {
      free_.push_back(*it);
    } else {
      block.unused = unused_.insert(unused_.end(), *it);
    }
  }
}

}  // namespace nacre::model
