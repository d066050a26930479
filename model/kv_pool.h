// The paged KV cache: one pool of blocks of 16 positions for all sessions. A
// block id names the same block in every layer, so a session needs one block
// table. Room is reserved when a sequence begins; a running one never runs out.
// Nodes of token trees have slots in blocks of their own, reserved with the
// positions and counted in the same ledger.
// Sequences that begin with the same tokens share full blocks (block_pool.h). A
// row's keys and values are the same bits in any batch, so sharing changes no
// output.
//
// Thread-compatible: one thread uses a pool and its sequences.

#ifndef MODEL_KV_POOL_H_
#define MODEL_KV_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/block_pool.h"
#include "model/block_sequence.h"
#include "model/kv_store.h"

namespace nacre::model {

class KvPool;

// Whether a model with that context may reserve such a sequence.
// INVALID_ARGUMENT (with the number and the limit): it is outside of 1 to the
// context, or its slots outside of 0 to LanguageModel::kMostSlots.
absl::Status CheckSequence(int max_length, int num_slots, int context_length);

class KvSequence : public BlockSequence {
 public:
  const KvPool* pool() const { return pool_; }

 private:
  friend class KvPool;
  KvSequence(KvPool* pool, int max_length, BlockPool::Reservation reservation,
             int num_slots, int prompt_positions);
  void Move(absl::Span<const kernels::KvMove> moves) override;

  KvPool* pool_;
};

class KvPool {
 public:
  static constexpr int kBlockSize = 16;  // positions

  struct Shape {
    int num_layers = 0;
    int num_key_value_heads = 0;
    int head_dim = 0;
    kernels::DType type = kernels::DType::kF32;  // Backend::kv_type()
  };

  struct Options {
    bool prefix_cache = false;  // whether sequences share blocks
    // Where shared blocks are kept longer; of bytes only with prefix_cache.
    KvStoreOptions store;
    // Adds a block to those that fit, for rows that only fill up a step.
    bool has_spare_block = false;
  };

  // Bytes of one position in all layers: keys and values.
  static int64_t BytesPerToken(const Shape& shape);

  // Positions of the cache that a sequence takes: whole blocks of positions,
  // and whole blocks of slots.
  static int64_t ReservedTokens(int max_length, int num_slots);

  // As many blocks as fit into `bytes`. INVALID_ARGUMENT (with the numbers) if
  // not one does, RESOURCE_EXHAUSTED if the device has no room, as of
  // KvStore::Create; UNIMPLEMENTED: a store of a device's memory. `backend`
  // outlives the pool, the pool its sequences.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(
      kernels::Backend* backend, const Shape& shape, int64_t bytes,
      const Options& options);
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(
      kernels::Backend* backend, const Shape& shape, int64_t bytes) {
    return Create(backend, shape, bytes, Options());
  }

  // RESOURCE_EXHAUSTED (with the numbers) if too few blocks are free. Room is
  // ReservedTokens(max_length, num_slots), `max_length` >= 1. The
  // sequence starts with what the cache has of token_ids, all but one of them
  // at most. `prompt_positions`: BlockSequence's.
  absl::StatusOr<std::unique_ptr<KvSequence>> Reserve(
      int max_length, absl::Span<const int32_t> token_ids = {},
      int num_slots = 0, int prompt_positions = 0);

  // Queues the copies of all paths that sequences have kept: together, since a
  // device takes its time for each queueing. Before anything reads the layers.
  void FinishMoves();

  int64_t capacity_tokens() const { return int64_t{num_blocks_} * kBlockSize; }
  // Cached blocks that no sequence uses count as free.
  int64_t free_tokens() const {
    return int64_t{blocks_->num_available()} * kBlockSize;
  }
  bool prefix_cache() const { return blocks_->caches(); }
  int blocks_brought_at_once() const {
    return blocks_->blocks_brought_at_once();
  }
  // A block table of kBlockSize positions that no sequence has. Only of a pool
  // with a spare block.
  const int32_t* spare_table() const { return &num_blocks_; }
  const kernels::KvLayer& layer(int index) const { return layers_[index]; }
  absl::Span<const kernels::KvLayer> layers() const { return layers_; }

 private:
  friend class KvSequence;
  KvPool() = default;

  absl::Status AddStore(const KvStoreOptions& options);
  void Move(absl::Span<const kernels::KvMove> moves);

  kernels::Backend* backend_ = nullptr;
  std::vector<kernels::KvMove> moves_;  // not queued yet
  int32_t num_blocks_ = 0;  // that sequences can have; the spare one is next
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
  std::vector<kernels::KvLayer> layers_;
  std::unique_ptr<BlockPool> blocks_;
  std::unique_ptr<KvStore> store_;  // null: none
};

}  // namespace nacre::model

#endif  // MODEL_KV_POOL_H_
