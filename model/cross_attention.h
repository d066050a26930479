// The part of a GliDe draft (arXiv:2402.02082) that looks at its target: each
// layer's attention to what the target has kept of the text. A row at position
// p sees the target's positions below p, as many as are there.
//
// Thread-compatible: the thread of the model whose part it is.

#ifndef MODEL_CROSS_ATTENTION_H_
#define MODEL_CROSS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/kv_layer.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/rope.h"
#include "model/step_values.h"

namespace nacre::model {

// Where the target's keys and values of a text lie: positions 0..length-1.
// Fewer than the text has make what a row sees shorter, never wrong.
struct TargetKv {
  const int32_t* table = nullptr;  // as RowContext::block_table; null if empty
  int length = 0;
};

// Of a layer; `size` is that of all heads of the target.
struct CrossWeights {
  std::unique_ptr<kernels::PackedMatrix> q;  // [size, hidden]
  std::unique_ptr<kernels::PackedMatrix> o;  // [hidden, size]
};

class CrossAttention {
 public:
  // `cross`: the heads, and how their queries turn. Both outlive it.
  CrossAttention(const ModelConfig& cross, kernels::Backend* backend)
      : config_(cross),
        backend_(backend),
        rope_(cross),
        sent_cos_(backend),
        sent_sin_(backend),
        queries_(backend),
        found_(backend) {}

  // Room for sequences that long, so that no step makes any.
  void Reserve(int max_length) { rope_.Reserve(max_length); }

  // The rows of a step, in their order: Clear, then each. A target's positions
  // without a table are a bug of ours, fatal.
  void Clear();
  void Add(const TargetKv& target, int position);
  // Then, before the step: makes room for the rows and sends their angles.
  // RESOURCE_EXHAUSTED.
  absl::Status Begin();

  // Of one layer: adds what the rows find in `kv` to activations->attended.
  //                                                     [rows, hidden_size]
  void Run(const CrossWeights& weights, const kernels::KvLayer& kv,
           int hidden_size, Activations* activations);

 private:
  // Rows, one after the other, that see something.
  struct Seeing {
    size_t first = 0;
    size_t count = 0;
  };

  // Of what sees nothing, which finds nothing.
  void SendZeros();

  const ModelConfig& config_;
  kernels::Backend* const backend_;
  RopeTable rope_;
  std::vector<Seeing> runs_;
  std::vector<kernels::RowContext> contexts_;  // of all rows
  std::vector<float> cos_;                     // [rows, head_dim / 2]
  std::vector<float> sin_;
  StepValues sent_cos_;
  StepValues sent_sin_;
  StepValues queries_;        // [rows, all heads of the target]
  StepValues found_;          // likewise: what attention gave
  std::vector<float> zeros_;  // of rows that see nothing
};

}  // namespace nacre::model

#endif  // MODEL_CROSS_ATTENTION_H_
