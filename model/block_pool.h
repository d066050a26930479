// Which blocks of a KV cache are free, in use, shared or cached: the
// bookkeeping of KvPool, without the memory.
//
// A full block whose tokens are settled can be published. Later sequences that
// begin with the same tokens take it over instead of computing it again. A
// block is known by its tokens and by the block before it, compared in full and
// not by a hash. So it stands for one exact prefix. Blocks that no sequence
// uses stay cached until their room is needed, the one unused longest goes
// first.
//
// Thread-compatible.

#ifndef MODEL_BLOCK_POOL_H_
#define MODEL_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace nacre::model {

class BlockStore;  // model/block_store.h

class BlockPool {
 public:
  // A published prefix; kRoot is the empty one. Never used twice.
  using Node = uint64_t;
  static constexpr Node kRoot = 0;

  // A prefix whose next block begins with so many positions that were computed
  // as a prompt's (kernels/prompt_products.h): keys and values of the same
  // tokens differ. What is published after one is not found after another.
  // 0 to block_size() positions; of 0 it is `node` itself.
  static constexpr Node Before(Node node, int prompt_positions) {
    return node | static_cast<Node>(prompt_positions) << 48;
  }

  // Blocks of `block_size` tokens. Without `cache` nothing is ever shared.
  BlockPool(int num_blocks, int block_size, bool cache);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // What is published from now on is kept there, too. Before the first
  // publication; `store` outlives the pool's use.
  void set_store(BlockStore* store) { store_ = store; }

  struct Reservation {
    std::vector<int32_t> blocks;
    int num_cached = 0;  // of them, from the front: they hold token_ids
    Node node = kRoot;   // of the last of those
  };
  // `num_blocks` blocks of one sequence, as many as can be from the cache. But
  // at least one of token_ids is left to be computed. Of the positions the
  // first `prompt_positions` are computed as a prompt's. nullopt, and nothing
  // changed, when there are too few.
  absl::optional<Reservation> Reserve(int num_blocks,
                                      absl::Span<const int32_t> token_ids,
                                      int prompt_positions = 0);
  // Of the positions of block `index`.
  int PromptPositionsOf(int index, int prompt_positions) const;

  // `block`, reserved by the caller, holds `token_ids` [block_size] after the
  // prefix `parent` and will not change any more. Returns the prefix that ends
  // with it. If another block already stands for it, this one stays private.
  // It happens between the steps of running sequences. So it takes no memory,
  // but where a store is to keep the block (BlockStore::Keep).
  Node Publish(Node parent, absl::Span<const int32_t> token_ids, int32_t block);

  struct Published {
    int32_t block = 0;
    Node node = kRoot;
  };
  // The block that stands for `parent` and after it `token_ids`, from now on
  // in use by the caller; nullopt if there is none.
  absl::optional<Published> TakePublished(Node parent,
                                          absl::Span<const int32_t> token_ids);

  // As Publish, with the name of what is known elsewhere already. Where there
  // is no such block yet.
  void PublishAs(Node node, Node parent, absl::Span<const int32_t> token_ids,
                 int32_t block);

  // Where the store keeps `token_ids` after `parent`, `block` of the caller
  // holds that afterwards and is published. Returns the prefix; nullopt, and
  // nothing changed, where it does not.
  absl::optional<Node> Bring(Node parent, absl::Span<const int32_t> token_ids,
                             int32_t block);
  // Whether Bring would find it; counts as a use in the store.
  bool IsKept(Node parent, absl::Span<const int32_t> token_ids) const;
  // As of BlockStore::blocks_at_once; 0: there is no store.
  int blocks_brought_at_once() const;

  // A number that no call before gave (BlockSequence::version).
  uint64_t NewVersion() { return ++last_version_; }

  // Gives a sequence's blocks back.
  void Release(absl::Span<const int32_t> blocks);

  int block_size() const { return block_size_; }
  bool caches() const { return cache_; }
  // Free or cached and not in use: what Reserve can give.
  int num_available() const {
    return static_cast<int>(free_.size() + unused_.size());
  }
  int num_cached() const { return static_cast<int>(published_.size()); }

 private:
  // What a published block stands for: these tokens after `parent`.
  struct Prefix {
    Node parent;
    absl::Span<const int32_t> token_ids;
    bool operator==(const Prefix&) const = default;
  };

  struct Block {
    int uses = 0;
    Node node = kRoot;  // kRoot: not published
    Node parent = kRoot;
    std::list<int32_t>::iterator unused;  // where uses == 0 and published
  };

  // Published blocks are found by their prefixes.
  struct PrefixHash {
    using is_transparent = void;
    const BlockPool* pool;
    size_t operator()(const Prefix& prefix) const;
    size_t operator()(int32_t block) const;
  };
  struct PrefixEqual {
    using is_transparent = void;
    const BlockPool* pool;
    bool operator()(int32_t a, int32_t b) const;
    bool operator()(const Prefix& prefix, int32_t block) const;
    bool operator()(int32_t block, const Prefix& prefix) const;
  };

  Prefix PrefixOf(int32_t block) const;
  void Use(int32_t block);
  void Evict(int32_t block);  // published, unused
  int32_t TakeFree();

  const int block_size_;
  const bool cache_;
  BlockStore* store_ = nullptr;
  Node next_node_ = kRoot + 1;
  uint64_t last_version_ = 0;
  std::vector<Block> blocks_;
  std::vector<int32_t> token_ids_;  // of published blocks, [blocks, block_size]
  std::vector<int32_t> free_;
  std::list<int32_t> unused_;  // published, the one unused longest first
  absl::flat_hash_set<int32_t, PrefixHash, PrefixEqual> published_;
};

}  // namespace nacre::model

#endif  // MODEL_BLOCK_POOL_H_
