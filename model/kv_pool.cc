#include "model/kv_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::model {

KvSequence::KvSequence(KvPool* pool, int max_length,
                       BlockPool::Reservation reservation, int num_slots,
                       int prompt_positions)
    : BlockSequence(pool->blocks_.get(), max_length, std::move(reservation),
                    num_slots, prompt_positions),
      pool_(pool) {}

void KvSequence::Move(absl::Span<const kernels::KvMove> moves) {
  pool_->Move(moves);
}

void KvPool::Move(absl::Span<const kernels::KvMove> moves) {
  const auto is_target = [this](const kernels::KvMove& move) {
    return std::any_of(
        moves_.begin(), moves_.end(),
        [&](const kernels::KvMove& other) { return other.to == move.to; });
  };
  // A path may be kept, forgotten, and another be kept in its place. The moves
  // of one call have no order.
  if (std::any_of(moves.begin(), moves.end(), is_target)) FinishMoves();
  moves_.insert(moves_.end(), moves.begin(), moves.end());
}

void KvPool::FinishMoves() {
  if (moves_.empty()) return;
  backend_->MoveKv(moves_, layers_);
  moves_.clear();
}

int64_t KvPool::ReservedTokens(int max_length, int num_slots) {
  return int64_t{BlockSequence::NumBlocks(max_length, num_slots, kBlockSize)} *
         kBlockSize;
}

absl::Status CheckSequence(int max_length, int num_slots, int context_length) {
  if (max_length < 1 || max_length > context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a sequence of ", max_length,
        " positions is outside the model's context of 1 to ", context_length));
  }
  if (num_slots < 0 || num_slots > LanguageModel::kMostSlots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a sequence of ", num_slots, " slots for tree nodes is outside 0 to ",
        LanguageModel::kMostSlots));
  }
  return absl::OkStatus();
}

int64_t KvPool::BytesPerToken(const Shape& shape) {
  const int elements = kernels::KvWidth(shape.type, shape.head_dim) +
                       kernels::KvScaleElements(shape.type);
  return int64_t{2} * shape.num_layers * shape.num_key_value_heads * elements *
         static_cast<int64_t>(kernels::SizeOf(shape.type));
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(
    kernels::Backend* backend, const Shape& shape, int64_t bytes,
    const Options& options) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) / kBlockSize - 1;
  const int64_t block_bytes = BytesPerToken(shape) * kBlockSize;
  const int64_t num_blocks = std::min(bytes / block_bytes, kMaxBlocks);
  if (num_blocks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a KV cache of ", bytes, " bytes does not hold one block of ",
        kBlockSize, " positions, which needs ", block_bytes, " bytes"));
  }
  std::unique_ptr<KvPool> pool(new KvPool());
  pool->backend_ = backend;
  pool->num_blocks_ = static_cast<int>(num_blocks);
  const int64_t all_blocks = num_blocks + (options.has_spare_block ? 1 : 0);
  const size_t layer_bytes =
      static_cast<size_t>(all_blocks * block_bytes / shape.num_layers);
  for (int i = 0; i < shape.num_layers; ++i) {
    NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> blocks,
                           backend->Allocate(layer_bytes));
    kernels::KvLayer layer;
    layer.blocks = blocks->data();
    layer.num_blocks = static_cast<int>(all_blocks);
    layer.num_kv_heads = shape.num_key_value_heads;
    layer.block_size = kBlockSize;
    layer.head_dim = shape.head_dim;
    layer.type = shape.type;
    pool->layers_.push_back(layer);
    pool->buffers_.push_back(std::move(blocks));
  }
  pool->blocks_ = std::make_unique<BlockPool>(pool->num_blocks_, kBlockSize,
                                              options.prefix_cache);
  NACRE_RETURN_IF_ERROR(pool->AddStore(options.store));
  return pool;
}

absl::Status KvPool::AddStore(const KvStoreOptions& options) {
  if (options.bytes == 0) return absl::OkStatus();
  if (backend_->location() != kernels::Location::kHost) {
    return absl::UnimplementedError(
        "--prefix-cache-size: only the backends \"cpu\" and \"reference\" keep "
        "more than the KV cache holds");
  }
  NACRE_CHECK(blocks_->caches(), "a store of blocks that are not shared");
  auto store = KvStore::Create(options, layers_, [this] { FinishMoves(); });
  if (!store.ok()) {
    return absl::Status(
        store.status().code(),
        absl::StrCat("--prefix-cache-size", options.dir.empty() ? "" : ", -dir",
                     ": ", store.status().message()));
  }
  store_ = *std::move(store);
  blocks_->set_store(store_.get());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KvSequence>> KvPool::Reserve(
    int max_length, absl::Span<const int32_t> token_ids, int num_slots,
    int prompt_positions) {
  NACRE_CHECK(max_length >= 1, "a sequence of no positions");
  NACRE_CHECK(num_slots >= 0, "a negative number of slots");
  // No cached block may come to stand where slots are.
  token_ids = token_ids.subspan(0, static_cast<size_t>(max_length));
  const int needed =
      BlockSequence::NumBlocks(max_length, num_slots, kBlockSize);
  absl::optional<BlockPool::Reservation> reservation =
      blocks_->Reserve(needed, token_ids, prompt_positions);
  if (!reservation.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a sequence of ", max_length, " positions",
        num_slots > 0 ? absl::StrCat(" and ", num_slots, " slots") : "",
        " needs ", int64_t{needed} * kBlockSize, " of KV cache, ",
        free_tokens(), " of ", capacity_tokens(), " are free"));
  }
  return std::unique_ptr<KvSequence>(new KvSequence(
      this, max_length, *std::move(reservation), num_slots, prompt_positions));
}

}  // namespace nacre::model
