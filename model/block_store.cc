#include "model/block_store.h"

#include "common/check.h"

namespace nacre::model {

BlockStore::BlockStore(int num_blocks, int block_size, int blocks_at_once)
    : num_blocks_(num_blocks),
      blocks_at_once_(blocks_at_once),
      slots_(num_blocks, block_size, /*cache=*/true) {}

absl::optional<BlockPool::Published> BlockStore::Find(
    Node parent, absl::Span<const int32_t> token_ids) {
  const auto found = slots_.TakePublished(parent, token_ids);
  // Now it is the one used last.
  if (found.has_value()) slots_.Release({&found->block, 1});
  return found;
}

void BlockStore::Keep(Node node, Node parent,
                      absl::Span<const int32_t> token_ids, int32_t block) {
  const auto slot = slots_.Reserve(1, {});
  NACRE_CHECK(slot.has_value(), "all slots of a store are in use");
  Save(block, slot->blocks.front());
  slots_.PublishAs(node, parent, token_ids, slot->blocks.front());
  slots_.Release(slot->blocks);
}

absl::optional<BlockStore::Node> BlockStore::Bring(
    Node parent, absl::Span<const int32_t> token_ids, int32_t block) {
  const auto found = Find(parent, token_ids);
  if (!found.has_value()) return absl::nullopt;
  Load(found->block, block);
  return found->node;
}

absl::optional<BlockStore::Node> BlockStore::Touch(
    Node parent, absl::Span<const int32_t> token_ids) {
  const auto found = Find(parent, token_ids);
  if (!found.has_value()) return absl::nullopt;
  return found->node;
}

}  // namespace nacre::model
