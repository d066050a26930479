// A model of random weights for benchmarks, a Llama or of any family that
// model/families.h has, as a checkpoint in memory: all tensors are views of one
// buffer that is as large as the largest of them, each begins somewhere else in
// it. So a model of any number of layers is there at
// once, and a backend that packs weights copies them as it does real ones.
//
// Thread-compatible.

#ifndef TESTS_BENCHMARKS_RANDOM_LLAMA_H_
#define TESTS_BENCHMARKS_RANDOM_LLAMA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/expected_tensors.h"
#include "model/load_model.h"

namespace nacre::model {

struct LlamaShape {
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int context = 0;  // most positions
};

// Heads of 64, 4 query heads for a KV head, 2.75 times as wide inside.
//   hidden: a multiple of 256
LlamaShape ShapeOfWidth(int hidden, int layers, int vocab, int context);

// Elements of all matrices that a row goes through: every one but the
// embeddings, of experts those that a row goes to.
double MatrixWeights(const ModelConfig& config);

// What its checkpoint has: embedding, head and norms outside of layers first,
// then each layer's.
std::vector<ExpectedTensor> AllTensors(const ModelConfig& config);

class RandomLlama {
 public:
  // bf16 or f32 weights.
  RandomLlama(const LlamaShape& shape, kernels::DType dtype);
  // Of what a config.json says.
  RandomLlama(std::string config_json, kernels::DType dtype);

  const ModelConfig& config() const { return config_; }

  absl::StatusOr<std::unique_ptr<LanguageModel>> Load(
      kernels::Backend* backend, const ModelOptions& options) const;

  // The same as a folder, which is there: config.json and model.safetensors.
  absl::Status Write(const std::string& dir) const;

 private:
  // Its values; counts the matrices, so that each has others.
  absl::string_view Bytes(const ExpectedTensor& tensor, size_t* matrices) const;

  std::string config_json_;
  ModelConfig config_;
  kernels::DType dtype_;
  std::vector<char> matrices_;
  std::vector<char> norms_;  // values near what leaves a row as it is
};

}  // namespace nacre::model

#endif  // TESTS_BENCHMARKS_RANDOM_LLAMA_H_
