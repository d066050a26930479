// The tensors of a GliDe draft in a backend's layout: a Llama's under a Llama's
// names, and of each layer cross_attn.q_proj and cross_attn.o_proj.
//
// Thread-compatible: immutable after LoadGlideWeights.

#ifndef MODEL_GLIDE_WEIGHTS_H_
#define MODEL_GLIDE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/glide_config.h"
#include "model/weights.h"

namespace nacre::model {

struct GlideWeights {
  // Of a layer; `size` is that of all heads of the target.
  struct Cross {
    std::unique_ptr<kernels::PackedMatrix> q;  // [size, hidden]
    std::unique_ptr<kernels::PackedMatrix> o;  // [hidden, size]
  };
  Weights llama;
  std::vector<Cross> cross;
  int64_t num_parameters = 0;
  int64_t size_bytes = 0;  // in the file
};

// As LoadWeights; INVALID_ARGUMENT also for a tensor of a cross attention that
// is none of these.
absl::StatusOr<GlideWeights> LoadGlideWeights(const Checkpoint& checkpoint,
                                              const GlideConfig& config,
                                              kernels::Backend* backend);

}  // namespace nacre::model

#endif  // MODEL_GLIDE_WEIGHTS_H_
