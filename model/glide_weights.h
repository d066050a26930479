// The tensors of a GliDe draft in a backend's layout: a Llama's under a Llama's
// names, and of each layer cross_attn.q_proj and cross_attn.o_proj.
//
// Thread-compatible: immutable after they are loaded.

#ifndef MODEL_GLIDE_WEIGHTS_H_
#define MODEL_GLIDE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/cross_attention.h"
#include "model/glide_config.h"
#include "model/weights.h"

namespace nacre::model {

struct GlideWeights {
  Weights llama;
  std::vector<CrossWeights> cross;
  int64_t num_parameters = 0;
  int64_t size_bytes = 0;  // in the file
};

// Of each of the config's layers, over heads as of CrossHeads.
struct CrossLayers {
  std::vector<CrossWeights> layers;
  int64_t num_parameters = 0;
  int64_t size_bytes = 0;
};

// As LoadWeights; INVALID_ARGUMENT also for a tensor of a cross attention that
// is none of these.
absl::StatusOr<CrossLayers> LoadCrossLayers(const Checkpoint& checkpoint,
                                            const ModelConfig& config,
                                            const ModelConfig& cross,
                                            kernels::Backend* backend);

// Both. Errors: theirs.
absl::StatusOr<GlideWeights> LoadGlideWeights(const Checkpoint& checkpoint,
                                              const GlideConfig& config,
                                              kernels::Backend* backend);

}  // namespace nacre::model

#endif  // MODEL_GLIDE_WEIGHTS_H_
