// What a model is loaded with.
//
// A plain value.

#ifndef MODEL_MODEL_OPTIONS_H_
#define MODEL_MODEL_OPTIONS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "model/kv_budget.h"
#include "model/kv_store.h"
#include "model/memory_needs.h"
#include "model/progress.h"

namespace nacre::model {

struct TensorShard;  // model/tensor_shard.h

struct ModelOptions {
  int64_t kv_cache_bytes = int64_t{256} << 20;
  ProgressCallback progress;    // may be empty; stages "weights", "fingerprint"
  bool prefix_cache = false;    // whether sequences share equal beginnings
  KvStoreOptions prefix_store;  // where they are kept longer
  // On a device with memory of its own, in place of kv_cache_bytes.
  absl::optional<KvBudget> kv_budget;
  int step_rows = 1;  // of the largest step, for what it needs
  // Where memory is the host's, told before the weights are loaded; an error
  // ends the load. May be empty.
  std::function<absl::Status(const MemoryNeeds& needs)> admit;
  // Of one rank of several, what it loads, until it is loaded; null: all.
  const TensorShard* shard = nullptr;
};

}  // namespace nacre::model

#endif  // MODEL_MODEL_OPTIONS_H_
