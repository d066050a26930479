// A model's weights in a backend's layout: the projections that share an input
// (q, k, v; gate, up) are stacked into one matrix.
//
// Thread-compatible: immutable after LoadWeights.

#ifndef MODEL_WEIGHTS_H_
#define MODEL_WEIGHTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/progress.h"

namespace nacre::model {

struct LayerWeights {
  std::unique_ptr<kernels::Buffer> input_norm;  // [hidden_size]
  std::unique_ptr<kernels::PackedMatrix> qkv;   // [q + 2 kv, hidden]
  std::unique_ptr<kernels::Buffer> qkv_bias;    // [q + 2 kv]; null: none
  std::unique_ptr<kernels::PackedMatrix> o;     // [hidden, q]
  std::unique_ptr<kernels::Buffer> post_attention_norm;  // [hidden_size]
  std::unique_ptr<kernels::PackedMatrix> gate_up;        // [2 inter, hidden]
  std::unique_ptr<kernels::PackedMatrix> down;           // [hidden, inter]
};

struct Weights {
  std::unique_ptr<kernels::PackedTable> embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::unique_ptr<kernels::Buffer> final_norm;  // [hidden_size]
  std::unique_ptr<kernels::PackedMatrix> head;  // [vocab, hidden]
  int64_t num_parameters = 0;
  int64_t size_bytes = 0;  // in the checkpoint
};

// NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED naming the tensor that is
// missing, has another shape than the config implies, or has an unknown type;
// INVALID_ARGUMENT if the checkpoint has more layers than the config;
// RESOURCE_EXHAUSTED where the device or, for the embedding table, the host has
// no room, with the bytes. `backend`
// outlives the result; of `checkpoint` nothing is kept. `progress` may be
// empty.
absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint,
                                    const ModelConfig& config,
                                    kernels::Backend* backend,
                                    const ProgressCallback& progress);

}  // namespace nacre::model

#endif  // MODEL_WEIGHTS_H_
