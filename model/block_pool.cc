#include "model/block_pool.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "common/check.h"
#include "model/block_store.h"

namespace nacre::model {

size_t BlockPool::PrefixHash::operator()(const Prefix& prefix) const {
  return absl::HashOf(prefix.parent, prefix.token_ids);
}

size_t BlockPool::PrefixHash::operator()(int32_t block) const {
  return (*this)(pool->PrefixOf(block));
}

bool BlockPool::PrefixEqual::operator()(int32_t a, int32_t b) const {
  return pool->PrefixOf(a) == pool->PrefixOf(b);
}

bool BlockPool::PrefixEqual::operator()(const Prefix& prefix,
                                        int32_t block) const {
  return prefix == pool->PrefixOf(block);
}

bool BlockPool::PrefixEqual::operator()(int32_t block,
                                        const Prefix& prefix) const {
  return prefix == pool->PrefixOf(block);
}

BlockPool::BlockPool(int num_blocks, int block_size, bool cache)
    : block_size_(block_size),
      cache_(cache),
      blocks_(static_cast<size_t>(num_blocks)),
      token_ids_(cache ? blocks_.size() * static_cast<size_t>(block_size) : 0),
      published_(0, PrefixHash{this}, PrefixEqual{this}) {
  // Taken from the back: the first sequence gets block 0 and on.
  free_.reserve(blocks_.size());
  for (int i = num_blocks - 1; i >= 0; --i) free_.push_back(i);
  // A quarter more: what is erased leaves marks, which the set cleans up in
  // place only while it is not nearly full.
  if (cache) published_.reserve(blocks_.size() + blocks_.size() / 4);
}

BlockPool::Prefix BlockPool::PrefixOf(int32_t block) const {
  const size_t index = static_cast<size_t>(block);
  const size_t size = static_cast<size_t>(block_size_);
  return {blocks_[index].parent,
          absl::MakeConstSpan(token_ids_).subspan(index * size, size)};
}

int BlockPool::PromptPositionsOf(int index, int prompt_positions) const {
  return std::clamp(prompt_positions - index * block_size_, 0, block_size_);
}

absl::optional<BlockPool::Reservation> BlockPool::Reserve(
    int num_blocks, absl::Span<const int32_t> token_ids, int prompt_positions) {
  Reservation reservation;
  int num_unused = 0;  // of the cached ones
  const size_t block_size = static_cast<size_t>(block_size_);
  for (size_t begin = 0; begin + block_size < token_ids.size();
       begin += block_size) {
    const Node after =
        Before(reservation.node,
               PromptPositionsOf(reservation.num_cached, prompt_positions));
    const auto found =
        published_.find(Prefix{after, token_ids.subspan(begin, block_size)});
    if (found == published_.end() || reservation.num_cached == num_blocks) {
      break;
    }
    const Block& block = blocks_[static_cast<size_t>(*found)];
    reservation.blocks.push_back(*found);
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

void BlockPool::Evict(int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  published_.erase(index);
  unused_.erase(block.unused);
  block.node = kRoot;
}

int32_t BlockPool::TakeFree() {
  if (free_.empty()) {
    const int32_t index = unused_.front();
    Evict(index);
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
  const auto found = published_.find(Prefix{parent, token_ids});
  if (found != published_.end()) {
    return blocks_[static_cast<size_t>(*found)].node;
  }
  // What was built on it and is kept stands for the same prefixes again.
  absl::optional<Node> kept;
  if (store_ != nullptr) kept = store_->Touch(parent, token_ids);
  const Node node = kept.has_value() ? *kept : next_node_++;
  PublishAs(node, parent, token_ids, index);
  if (store_ != nullptr && !kept.has_value()) {
    store_->Keep(node, parent, token_ids, index);
  }
  return node;
}

void BlockPool::PublishAs(Node node, Node parent,
                          absl::Span<const int32_t> token_ids, int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  NACRE_CHECK(block.uses > 0 && block.node == kRoot,
              "a block is published once, by its user");
  block.parent = parent;
  block.node = node;
  std::copy(token_ids.begin(), token_ids.end(),
            token_ids_.begin() + std::ptrdiff_t{index} * block_size_);
  published_.insert(index);
}

absl::optional<BlockPool::Node> BlockPool::Bring(
    Node parent, absl::Span<const int32_t> token_ids, int32_t index) {
  if (store_ == nullptr) return absl::nullopt;
  const auto node = store_->Bring(parent, token_ids, index);
  if (node.has_value()) PublishAs(*node, parent, token_ids, index);
  return node;
}

bool BlockPool::IsKept(Node parent, absl::Span<const int32_t> token_ids) const {
  return store_ != nullptr && store_->Touch(parent, token_ids).has_value();
}

int BlockPool::blocks_brought_at_once() const {
  return store_ == nullptr ? 0 : store_->blocks_at_once();
}

absl::optional<BlockPool::Published> BlockPool::TakePublished(
    Node parent, absl::Span<const int32_t> token_ids) {
  const auto found = published_.find(Prefix{parent, token_ids});
  if (found == published_.end()) return absl::nullopt;
  Use(*found);
  return Published{*found, blocks_[static_cast<size_t>(*found)].node};
}

void BlockPool::Release(absl::Span<const int32_t> blocks) {
  std::vector<int32_t> lost;  // by the store
  // The last first: a prefix outlives what is built on it.
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    Block& block = blocks_[static_cast<size_t>(*it)];
    if (store_ != nullptr && block.node != kRoot) {
      const Prefix prefix = PrefixOf(*it);
      if (!store_->Touch(prefix.parent, prefix.token_ids).has_value()) {
        lost.push_back(*it);
      }
    }
    if (--block.uses > 0) continue;
    if (block.node == kRoot) {
      free_.push_back(*it);
    } else {
      block.unused = unused_.insert(unused_.end(), *it);
    }
  }
  // Others may have taken their places while the sequence ran. What it begins
  // with is what the rest is found by.
  const size_t most = static_cast<size_t>(blocks_brought_at_once());
  const size_t first = lost.size() - std::min(lost.size(), most);
  for (const int32_t block : absl::MakeConstSpan(lost).subspan(first)) {
    const Prefix prefix = PrefixOf(block);
    store_->Keep(blocks_[static_cast<size_t>(block)].node, prefix.parent,
                 prefix.token_ids, block);
  }
}

}  // namespace nacre::model
