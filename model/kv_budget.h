// How large a KV cache may be on a device with memory of its own: what weights
// and a step's scratch leave of it.
//
// Pure functions, but for what a checkpoint's files say.

#ifndef MODEL_KV_BUDGET_H_
#define MODEL_KV_BUDGET_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device_memory.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// What a draft takes that is loaded after the cache: its weights and scratch,
// and of each token that the cache has room for.
struct DraftNeeds {
  int64_t bytes = 0;
  int64_t per_token = 0;
};

// What is asked of it.
struct KvBudget {
  double share = 1;      // of what is left, in (0, 1]
  int64_t most = 0;      // bytes; 0: no limit
  int step_rows = 1;     // rows of the largest step
  int64_t of_ranks = 0;  // bytes that a step needs as one of several ranks
  DraftNeeds draft;
};

// Bytes that a Forward of up to `rows` rows may come to hold on the device,
// with logits of all of them. It holds less than that.
int64_t ScratchBytes(const ModelConfig& config, int rows);

// What a draft's weights take at most, as they are stored in bf16 and kept in
// float32, and what pads them.
int64_t MostWeightBytes(const Checkpoint& draft);

// Bytes of the KV cache, `per_token` each, beside weights that are there
// already and scratch and a draft that are not. RESOURCE_EXHAUSTED, with the
// numbers, when these do not leave any.
absl::StatusOr<int64_t> KvBytes(const ModelConfig& config,
                                const kernels::DeviceMemory& memory,
                                const KvBudget& budget, int64_t per_token = 1);

}  // namespace nacre::model

#endif  // MODEL_KV_BUDGET_H_
