// Mixtures of experts: which experts a row goes to, and the feed-forward block
// that they are. The rows of an expert go through it together. Each row adds up
// its experts in the order of their numbers, so that its bits are a function of
// the row alone.
//
// Activations are read on the host: for backends of the host.
//
// Thread-compatible: one thread, the engine's.

#ifndef MODEL_EXPERTS_H_
#define MODEL_EXPERTS_H_

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
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

// Keeps its scratch.
class ExpertBlock {
 public:
  // The router's logits of the next rows, [rows, experts]: to be filled
  // before Run.
  float* RouterLogits(const ModelConfig& config, int rows);

  // out = sum over the chosen experts e of weight_e * down_e(act(gate_up_e(x)))
  //   x, out [rows, hidden_size]
  void Run(const ModelConfig& config, kernels::Backend* backend,
           absl::Span<const ExpertWeights> experts, const float* x, int rows,
           float* out);

 private:
  struct Assigned {
    int row;
    float weight;
  };

  std::vector<float> logits_;
  std::vector<ExpertChoice> choices_;            // of one row
  std::vector<std::vector<Assigned>> assigned_;  // to each expert
  std::vector<float> in_;                        // of one expert's rows
  std::vector<float> gate_up_;
  std::vector<float> gated_;
  std::vector<float> out_;
};

}  // namespace nacre::model

#endif  // MODEL_EXPERTS_H_
