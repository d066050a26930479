// Which published blocks are kept when the pool needs their room: the
// bookkeeping of a second, larger and slower tier of the prefix cache
// (kv_store.h), without the memory. Each block is copied there when it is
// published, so that nothing has to be copied when its room is needed. The one
// unused longest goes first.
//
// Thread-compatible, together with its pool.

#ifndef MODEL_BLOCK_STORE_H_
#define MODEL_BLOCK_STORE_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/block_pool.h"

namespace nacre::model {

class BlockStore {
 public:
  using Node = BlockPool::Node;

  // Of `num_blocks` >= 1 blocks of `block_size` tokens. `blocks_at_once` >= 1:
  // as many as sequences should bring between two steps, all together.
  BlockStore(int num_blocks, int block_size, int blocks_at_once);
  virtual ~BlockStore() = default;
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Keeps what the pool's `block` holds: `token_ids` after the prefix `parent`,
  // together `node`. Only what Touch does not find.
  void Keep(Node node, Node parent, absl::Span<const int32_t> token_ids,
            int32_t block);

  // Copies what is kept of `token_ids` after `parent` into the pool's `block`,
  // and says which prefix that is; nullopt, and nothing changed, where none is
  // kept.
  absl::optional<Node> Bring(Node parent, absl::Span<const int32_t> token_ids,
                             int32_t block);

  // Which prefix that is, if it is kept. It counts as used now.
  absl::optional<Node> Touch(Node parent, absl::Span<const int32_t> token_ids);

  int blocks_at_once() const { return blocks_at_once_; }
  int num_blocks() const { return num_blocks_; }
  int num_kept() const { return slots_.num_cached(); }

 private:
  // What the pool's block holds, to a slot of the store and from it.
  virtual void Save(int32_t block, int32_t slot) = 0;
  virtual void Load(int32_t slot, int32_t block) = 0;

  absl::optional<BlockPool::Published> Find(
      Node parent, absl::Span<const int32_t> token_ids);

  const int num_blocks_;
  const int blocks_at_once_;
  BlockPool slots_;  // none is in use but within a call
};

}  // namespace nacre::model

#endif  // MODEL_BLOCK_STORE_H_
