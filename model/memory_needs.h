// What a model will take of memory, from its config and the headers of its
// files: told before minutes are spent on loading it.
//
// Values; MemoryNeeds::Of is pure.

#ifndef MODEL_MEMORY_NEEDS_H_
#define MODEL_MEMORY_NEEDS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// In bytes, of the memory that the backend computes in.
struct MemoryNeeds {
  // Written while the model is loaded.
  int64_t weights = 0;      // of products, as they are kept; norms and biases
  int64_t num_factors = 0;  // weights of products; 0: it is not told
  // Of those some are integers in the file, which say the same in fewer bits.
  bool has_widened = false;
  // So much less it is where few bits say the same (ProductOps::MayBeSaved),
  // which only the values tell.
  int64_t may_be_saved = 0;
  int64_t tables = 0;  // the embedding, learned positions
  // Taken as they are used, these at most.
  int64_t kv_cache = 0;
  int64_t prefix_store = 0;  // KvStore, in memory
  int64_t scratch = 0;       // of a step
  // Floats that quantized weights become before they are packed: of the largest
  // matrix, given back before the others above are taken.
  int64_t converted = 0;

  int64_t loaded() const { return weights + tables; }
  int64_t loaded_at_least() const { return loaded() - may_be_saved; }
  int64_t total() const {
    return loaded() + std::max(converted, kv_cache + prefix_store + scratch);
  }
  // "7.008 GB: weights 4.223 (4.5 bits each), embedding 1.051, KV cache 1.074,
  // a step up to 0.660", what may be saved, and what is converted, if anything
  // is.
  std::string ToString() const;

  // `weights`, `tables` and `converted`. A tensor that is missing, or of
  // another type or shape than it must have, counts as none. So does all after
  // the first that a layer lacks. That is said when it is loaded. Of ranks, it
  // is of all of them, whose products of shared inputs are in `input_shards`.
  static MemoryNeeds Of(const Checkpoint& checkpoint, const ModelConfig& config,
                        const kernels::Backend& backend, int input_shards = 1);
};

}  // namespace nacre::model

#endif  // MODEL_MEMORY_NEEDS_H_
