// Keys and values of prefixes that the KV cache may have lost, in memory beside
// it or in a file: what a later prompt begins with is not computed again where
// it is kept.
//
// Of pools in the memory of the host. Thread-compatible, together with its
// pool.

#ifndef MODEL_KV_STORE_H_
#define MODEL_KV_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/scratch_memory.h"
#include "kernels/kv_layer.h"
#include "model/block_store.h"

namespace nacre::model {

struct KvStoreOptions {
  int64_t bytes = 0;  // 0: nothing is kept
  std::string dir;    // of the file; empty: memory
};

// Bytes of the machine's memory that it comes to take.
inline int64_t StoredInMemory(const KvStoreOptions& options) {
  return options.dir.empty() ? options.bytes : 0;
}

class KvStore final : public BlockStore {
 public:
  // Of blocks of `layers`, which outlive it. `settle` is called before a block
  // is read or written, for what is still to be done to it.
  // INVALID_ARGUMENT with the numbers where not one block fits, and as of
  // ScratchMemory::Create.
  static absl::StatusOr<std::unique_ptr<KvStore>> Create(
      const KvStoreOptions& options, absl::Span<const kernels::KvLayer> layers,
      std::function<void()> settle);

 private:
  KvStore(std::unique_ptr<ScratchMemory> memory, int num_blocks,
          absl::Span<const kernels::KvLayer> layers,
          std::function<void()> settle);

  void Save(int32_t block, int32_t slot) override;
  void Load(int32_t slot, int32_t block) override;

  // Calls copy(the bytes in a layer, the bytes in the store, how many).
  template <class Copy>
  void ForEachLayer(int32_t block, int32_t slot, Copy copy);

  const std::unique_ptr<ScratchMemory> memory_;  // [slots, layers, bytes]
  const absl::Span<const kernels::KvLayer> layers_;
  const std::function<void()> settle_;
};

}  // namespace nacre::model

#endif  // MODEL_KV_STORE_H_
