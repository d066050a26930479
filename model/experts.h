// Mixtures of experts: which experts a row goes to, and the feed-forward block
// that they are. The rows of an expert go through it together. Each row adds up
// its experts in the order of their numbers, so that its bits are a function of
// the row alone.
//
// The host chooses: it waits for the router's logits in each such layer.
//
// Thread-compatible: one thread, the engine's.

#ifndef MODEL_EXPERTS_H_
#define MODEL_EXPERTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/activations.h"
#include "model/config.h"

namespace nacre::model {

struct ExpertWeights {
  std::unique_ptr<kernels::PackedMatrix> gate_up;  // [2 expert_size, hidden]
  std::unique_ptr<kernels::PackedMatrix> down;     // [hidden, expert_size]
};

struct ExpertChoice {
  int expert = 0;
  float weight = 0;
};

// The `count` experts with the largest `logits` (among equal ones the first),
// in the order of their numbers. Their weights are their probabilities among
// all; with `normalize` these sum to 1.
void ChooseExperts(absl::Span<const float> logits, int count, bool normalize,
                   std::vector<ExpertChoice>* choices);

// Keeps its scratch on the host.
class ExpertBlock {
 public:
  // out = sum over the chosen experts e of weight_e * down_e(act(gate_up_e(x)))
  //   router [experts, hidden_size]; x, out [rows, hidden_size]
  //   scratch: room for `rows` (Activations::Grow)
  void Run(const ModelConfig& config, kernels::Backend* backend,
           const kernels::PackedMatrix& router,
           absl::Span<const ExpertWeights> experts, const float* x, int rows,
           ExpertActivations* scratch, float* out);

 private:
  // Fills what follows from `logits_`.
  void Choose(const ExpertOptions& options, int rows);

  std::vector<float> logits_;          // [rows, experts]
  std::vector<ExpertChoice> choices_;  // of one row
  // The rows of each expert, one expert after another; where they begin, and
  // where the last ends.
  std::vector<int32_t> assigned_;
  std::vector<size_t> begins_;
  // Of each row and each of its experts, [rows, per token]: where it is in
  // `assigned_`, and its weight.
  std::vector<int32_t> places_;
  std::vector<float> weights_;
};

}  // namespace nacre::model

#endif  // MODEL_EXPERTS_H_
