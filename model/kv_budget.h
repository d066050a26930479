// How large a KV cache may be on a device with memory of its own: what weights
// and a step's scratch leave of it.
//
// Pure functions.

#ifndef MODEL_KV_BUDGET_H_
#define MODEL_KV_BUDGET_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device_memory.h"
#include "model/config.h"

namespace nacre::model {

// What is asked of it.
struct KvBudget {
  double share = 1;      // of what is left, in (0, 1]
  int64_t most = 0;      // bytes; 0: no limit
  int step_rows = 1;     // rows of the largest step
  int64_t of_ranks = 0;  // bytes that a step needs as one of several ranks
};

// Bytes that a Forward of up to `rows` rows may come to hold on the device,
// with logits of all of them. It holds less than that.
int64_t ScratchBytes(const ModelConfig& config, int rows);

// Bytes of the KV cache beside weights that are there already and scratch that
// is not. RESOURCE_EXHAUSTED, with the numbers, when the scratch does not leave
// any.
absl::StatusOr<int64_t> KvBytes(const ModelConfig& config,
                                const kernels::DeviceMemory& memory,
                                const KvBudget& budget);

}  // namespace nacre::model

#endif  // MODEL_KV_BUDGET_H_
