// What a model will take of memory, from its config and the headers of its
// files: told before minutes are spent on loading it.
//
// Values; MemoryNeeds::Of is pure.

#ifndef MODEL_MEMORY_NEEDS_H_
#define MODEL_MEMORY_NEEDS_H_

#include <cstdint>
#include <string>

#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// In bytes, of the memory that the backend computes in.
struct MemoryNeeds {
  // Written while the model is loaded.
  int64_t weights = 0;  // of products, as they are kept; norms and biases
  int64_t tables = 0;   // the embedding, learned positions
  // Taken as they are used, these at most.
  int64_t kv_cache = 0;
  int64_t scratch = 0;  // of a step

  int64_t loaded() const { return weights + tables; }
  int64_t total() const { return loaded() + kv_cache + scratch; }
  // "9.9 GB: weights 4.6, embedding 1.1, KV cache 1.1, a step up to 0.6".
  std::string ToString() const;

  // `weights` and `tables`. A tensor that is missing, or of a type that is not
  // read, counts as none: that is said when it is loaded.
  static MemoryNeeds Of(const Checkpoint& checkpoint, const ModelConfig& config,
                        const kernels::Backend& backend);
};

}  // namespace nacre::model

#endif  // MODEL_MEMORY_NEEDS_H_
