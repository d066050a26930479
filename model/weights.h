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
#include "model/experts.h"
#include "model/progress.h"
#include "model/tensor_shard.h"

namespace nacre::model {

// Of a norm of what a block starts from, [hidden_size] each. Weights of norms
// have NormOptions::offset added.
struct NormWeights {
  std::unique_ptr<kernels::Buffer> weight;
  std::unique_ptr<kernels::Buffer> bias;  // of LayerNorm; else null
};

// Biases, post norms and norms of heads are null where the model has none.
// Heads of which a part turns (ModelConfig::rotary_size) are reordered. Then a
// pair that turns is two elements half a head apart, and scores stay what they
// are.
struct LayerWeights {
  NormWeights input_norm;
  std::unique_ptr<kernels::PackedMatrix> qkv;            // [q + 2 kv, hidden]
  std::unique_ptr<kernels::Buffer> qkv_bias;             // [q + 2 kv]
  std::unique_ptr<kernels::Buffer> query_norm;           // [head_dim]
  std::unique_ptr<kernels::Buffer> key_norm;             // [head_dim]
  std::unique_ptr<kernels::PackedMatrix> o;              // [hidden, q]
  std::unique_ptr<kernels::Buffer> o_bias;               // [hidden]
  std::unique_ptr<kernels::Buffer> attention_post_norm;  // [hidden_size]
  NormWeights mlp_norm;
  // Both, or of blocks without gates what is up, [inter, hidden].
  std::unique_ptr<kernels::PackedMatrix> gate_up;  // [2 inter, hidden]
  std::unique_ptr<kernels::Buffer> gate_up_bias;   // of their outputs
  std::unique_ptr<kernels::PackedMatrix> down;     // [hidden, inter]
  std::unique_ptr<kernels::Buffer> down_bias;      // [hidden]
  std::unique_ptr<kernels::Buffer> mlp_post_norm;  // [hidden_size]
  // Of a layer with experts, in place of gate_up and down.
  std::unique_ptr<kernels::PackedMatrix> router;  // [experts, hidden]
  std::vector<ExpertWeights> experts;
};

struct Weights {
  std::unique_ptr<kernels::PackedTable> embedding;  // [vocab, hidden]
  float embedding_scale = 1.0f;  // what its rows are multiplied by
  // Learned ones, [context, hidden]; null: the model has none.
  std::unique_ptr<kernels::PackedTable> positions;
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  std::unique_ptr<kernels::PackedMatrix> head;  // [vocab, hidden]
  int64_t num_parameters = 0;
  int64_t size_bytes = 0;  // in the checkpoint
};

// Of a model that scales its embedding: the square root of hidden_size, rounded
// to the type of the table, as in training.
float EmbeddingScale(const ModelConfig& config, kernels::DType table);

// NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED naming the tensor that is
// missing, has another shape than the config implies, or has an unknown type;
// INVALID_ARGUMENT if the checkpoint has more layers than the config;
// RESOURCE_EXHAUSTED where the device or, for the embedding table, the host has
// no room, with the bytes. `backend`
// outlives the result; of `checkpoint` nothing is kept. Quantized weights
// become floats one matrix at a time. `progress` may be empty. Of a shard,
// whose backend is `backend`, only its share is loaded; `config` and the counts
// are still the whole model's, which CheckSplit has passed.
absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint,
                                    const ModelConfig& config,
                                    kernels::Backend* backend,
                                    const ProgressCallback& progress,
                                    const TensorShard* shard = nullptr);

// Of the embedding and the head those that are wanted, and nothing else. Errors
// as of LoadWeights.
struct WantedTables {
  bool embedding = true;
  bool head = true;
};
absl::StatusOr<Weights> LoadVocabulary(const Checkpoint& checkpoint,
                                       const ModelConfig& config,
                                       WantedTables wanted,
                                       kernels::Backend* backend);

}  // namespace nacre::model

#endif  // MODEL_WEIGHTS_H_
