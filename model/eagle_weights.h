// The tensors of an EAGLE draft in a backend's layout.
//
// Thread-compatible: immutable after LoadEagleWeights.

#ifndef MODEL_EAGLE_WEIGHTS_H_
#define MODEL_EAGLE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/eagle_config.h"
#include "model/eagle_files.h"
#include "model/weights.h"

namespace nacre::model {

// Null, or empty: the draft has none. d: its hidden size.
struct EagleWeights {
  std::unique_ptr<kernels::PackedTable> embedding;  // or the target's
  // EAGLE-3: [d, all taps]. EAGLE-1: [d, embedding and tap].
  std::unique_ptr<kernels::PackedMatrix> fc;
  std::unique_ptr<kernels::Buffer> fc_bias;
  std::unique_ptr<kernels::Buffer> input_norm;              // [all taps]
  std::vector<std::unique_ptr<kernels::Buffer>> tap_norms;  // of each
  // [d]. Of EAGLE-3's layer, or before EAGLE-1's fc.
  std::unique_ptr<kernels::Buffer> embedding_norm;
  std::unique_ptr<kernels::Buffer> hidden_norm;
  // Its input norm is null. EAGLE-3: qkv is [.., 2 d], of embedding and hidden.
  LayerWeights layer;
  NormWeights final_norm;
  std::unique_ptr<kernels::PackedMatrix> head;  // or the target's
  std::vector<int32_t> token_ids;  // of the head's rows; empty: as they are
  int64_t num_parameters = 0;
  int64_t size_bytes = 0;  // in the file
};

// What EAGLE-3 does with features before its layer is linear, and can be done
// where the target is: its fc and the norms before that. Of EAGLE-1 that is
// nothing.
enum class EagleParts { kAll, kProjection, kRest };

// NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED name the tensor. It is missing,
// has another shape than the config implies, has an unknown type, or names
// tokens that the target does not have. `target_vocab_size`: of the target's
// head. What is not of `parts` is null.
absl::StatusOr<EagleWeights> LoadEagleWeights(const Checkpoint& checkpoint,
                                              const EagleLayout& layout,
                                              const EagleConfig& config,
                                              int target_vocab_size,
                                              kernels::Backend* backend,
                                              EagleParts parts);

}  // namespace nacre::model

#endif  // MODEL_EAGLE_WEIGHTS_H_
