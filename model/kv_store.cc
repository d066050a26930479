#include "model/kv_store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/kv_address.h"

namespace nacre::model {
namespace {

// Of all sequences' gigabytes. Memory copies it in some ten milliseconds, a
// part of the time of a step.
constexpr size_t kBytesAtOnce = size_t{64} << 20;

// Of a block in one layer.
size_t LayerBlockBytes(const kernels::KvLayer& layer) {
  return kernels::KvBlockIndex(layer, 1, 0) * kernels::SizeOf(layer.type);
}

size_t BlockBytes(absl::Span<const kernels::KvLayer> layers) {
  return LayerBlockBytes(layers.front()) * layers.size();
}

}  // namespace

KvStore::KvStore(std::unique_ptr<ScratchMemory> memory, int num_blocks,
                 absl::Span<const kernels::KvLayer> layers,
                 std::function<void()> settle)
    : BlockStore(num_blocks, layers.front().block_size,
                 static_cast<int>(
                     std::max<size_t>(1, kBytesAtOnce / BlockBytes(layers)))),
      memory_(std::move(memory)),
      layers_(layers),
      settle_(std::move(settle)) {}

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::Create(
    const KvStoreOptions& options, absl::Span<const kernels::KvLayer> layers,
    std::function<void()> settle) {
  const auto block_bytes = static_cast<int64_t>(BlockBytes(layers));
  const int64_t num_blocks = std::min<int64_t>(
      options.bytes / block_bytes, std::numeric_limits<int32_t>::max());
  if (num_blocks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a prefix cache of ", options.bytes,
        " bytes does not hold one block of ", layers.front().block_size,
        " positions, which needs ", block_bytes, " bytes"));
  }
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<ScratchMemory> memory,
      ScratchMemory::Create(static_cast<size_t>(num_blocks * block_bytes),
                            options.dir));
  return std::unique_ptr<KvStore>(new KvStore(std::move(memory),
                                              static_cast<int>(num_blocks),
                                              layers, std::move(settle)));
}

template <class Copy>
void KvStore::ForEachLayer(int32_t block, int32_t slot, Copy copy) {
  settle_();
  const size_t bytes = LayerBlockBytes(layers_.front());
  char* kept =
      memory_->data() + static_cast<size_t>(slot) * BlockBytes(layers_);
  for (const kernels::KvLayer& layer : layers_) {
    copy(static_cast<char*>(layer.blocks) + static_cast<size_t>(block) * bytes,
         kept, bytes);
    kept += bytes;
  }
}

void KvStore::Save(int32_t block, int32_t slot) {
  ForEachLayer(block, slot, [](const char* held, char* kept, size_t bytes) {
    std::memcpy(kept, held, bytes);
  });
}

void KvStore::Load(int32_t slot, int32_t block) {
  ForEachLayer(block, slot, [](char* held, const char* kept, size_t bytes) {
    std::memcpy(held, kept, bytes);
  });
}

}  // namespace nacre::model
