// Scratch of one forward of a transformer, grown to the largest batch and then
// reused. Used by the model's thread.

#ifndef MODEL_ACTIVATIONS_H_
#define MODEL_ACTIVATIONS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/memory_ops.h"
#include "model/config.h"

namespace nacre::model {

// Of the step's rows, [rows, head_dim / 2] each: the backend's
// (Backend::SendInputs).
struct Angles {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Of layers with experts. A row is in `in` once for each of its experts.
struct ExpertActivations {
  std::unique_ptr<kernels::Buffer> logits;   // of the router, [rows, experts]
  std::unique_ptr<kernels::Buffer> in;       // [rows * per token, hidden_size]
  std::unique_ptr<kernels::Buffer> gate_up;  // [rows * per token, 2 * size]
  std::unique_ptr<kernels::Buffer> gated;    // [rows * per token, size]
  std::unique_ptr<kernels::Buffer> out;      // as in
};

struct Activations {
  int max_rows = 0;
  // [rows, hidden_size]: between layers, and in the middle of one.
  std::unique_ptr<kernels::Buffer> hidden;
  std::unique_ptr<kernels::Buffer> attended;
  std::unique_ptr<kernels::Buffer> normed;     // [rows, hidden_size]
  std::unique_ptr<kernels::Buffer> qkv;        // [rows, q + 2 kv]
  std::unique_ptr<kernels::Buffer> attention;  // [rows, q]
  std::unique_ptr<kernels::Buffer> gate_up;    // [rows, 2 * intermediate]
  std::unique_ptr<kernels::Buffer> mlp;        // [rows, intermediate]
  const int32_t* positions = nullptr;  // of learned ones, likewise [rows]
  Angles angles;
  Angles local_angles;  // of layers that have other frequencies
  ExpertActivations experts;
  int max_logit_rows = 0;
  std::unique_ptr<kernels::Buffer> logits;  // [logit rows, vocab_size]

  // Makes room for a batch. RESOURCE_EXHAUSTED: the device has none; what had
  // to grow is then empty.
  absl::Status Grow(const ModelConfig& config, kernels::MemoryOps* memory,
                    int num_rows, int num_logit_rows);
};

}  // namespace nacre::model

#endif  // MODEL_ACTIVATIONS_H_
