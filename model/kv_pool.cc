#include "model/kv_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::model {

KvSequence::KvSequence(KvPool* pool, int max_length,
                       BlockPool::Reservation reservation)
    : BlockSequence(pool->blocks_.get(), max_length, std::move(reservation)),
      pool_(pool) {}

int64_t KvPool::BytesPerToken(const Shape& shape) {
  return int64_t{2} * shape.num_layers * shape.num_key_value_heads *
         shape.head_dim * static_cast<int64_t>(kernels::SizeOf(shape.type));
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(
    kernels::Backend* backend, const Shape& shape, int64_t bytes,
    Options options) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) / kBlockSize - 1;
  const int64_t block_bytes = BytesPerToken(shape) * kBlockSize;
  const int64_t num_blocks = std::min(bytes / block_bytes, kMaxBlocks);
  if (num_blocks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a KV cache of ", bytes, " bytes does not hold one block of ",
        kBlockSize, " positions, which needs ", block_bytes, " bytes"));
  }
  std::unique_ptr<KvPool> pool(new KvPool());
  pool->num_blocks_ = static_cast<int>(num_blocks);
  const size_t layer_bytes =
      static_cast<size_t>(num_blocks * block_bytes / shape.num_layers);
  for (int i = 0; i < shape.num_layers; ++i) {
    NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> blocks,
                           backend->Allocate(layer_bytes));
    kernels::KvLayer layer;
    layer.blocks = blocks->data();
    layer.num_blocks = pool->num_blocks_;
    layer.num_kv_heads = shape.num_key_value_heads;
    layer.block_size = kBlockSize;
    layer.head_dim = shape.head_dim;
    layer.type = shape.type;
    pool->layers_.push_back(layer);
    pool->buffers_.push_back(std::move(blocks));
  }
  pool->blocks_ = std::make_unique<BlockPool>(pool->num_blocks_, kBlockSize,
                                              options.prefix_cache);
  return pool;
}

absl::StatusOr<std::unique_ptr<KvSequence>> KvPool::Reserve(
    int max_length, absl::Span<const int32_t> token_ids) {
  NACRE_CHECK(max_length >= 1, "a sequence of no positions");
  const int needed = (max_length - 1) / kBlockSize + 1;
  absl::optional<BlockPool::Reservation> reservation =
      blocks_->Reserve(needed, token_ids);
  if (!reservation.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a sequence of ", max_length, " positions needs ",
                     int64_t{needed} * kBlockSize, " of KV cache, ",
                     free_tokens(), " of ", capacity_tokens(), " are free"));
  }
  return std::unique_ptr<KvSequence>(
      new KvSequence(this, max_length, *std::move(reservation)));
}

}  // namespace nacre::model
