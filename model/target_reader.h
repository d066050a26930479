// What makes a Llama a GliDe draft of a target that runs elsewhere: cross
// attention (cross_attention.h), and a cache of the target's keys and values,
// which come row by row.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_TARGET_READER_H_
#define MODEL_TARGET_READER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/activations.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/cross_attention.h"
#include "model/glide_weights.h"
#include "model/kv_pool.h"
#include "model/language_model.h"
#include "model/step_values.h"

namespace nacre::model {

class TargetReader final : public RowReader {
 public:
  // UNIMPLEMENTED where no such draft runs: split over several backends.
  static absl::Status Check(bool is_split);
  // Of a config with `cross`, with room for so many positions of the target, on
  // a backend that was checked and outlives it. Errors: of LoadCrossLayers and
  // of KvPool::Create.
  static absl::StatusOr<std::unique_ptr<TargetReader>> Create(
      const Checkpoint& checkpoint, const ModelConfig& config,
      int64_t capacity_tokens, kernels::Backend* backend);
  // What its weights take in bf16, a position, and that room, in the backend's
  // memory.
  static int64_t WeightBytes(const ModelConfig& config,
                             const kernels::Backend& backend);
  static int64_t BytesPerToken(const ModelConfig& config,
                               const kernels::Backend& backend);
  static int64_t CacheBytes(const ModelConfig& config, int64_t capacity_tokens,
                            const kernels::Backend& backend);

  const TargetRowShape& shape() const override { return shape_; }
  const CrossLayers& weights() const { return weights_; }
  absl::StatusOr<std::unique_ptr<TargetSequence>> NewTargetSequence(
      int max_length) override;

  // The rows of a step, in its order: Clear, then those of each sequence, which
  // `length` positions come before. The sequence is one of this reader's.
  void Clear() { cross_.Clear(); }
  void Add(const SequenceRows& rows, int length);
  // Then, before the step: makes room for them. RESOURCE_EXHAUSTED.
  absl::Status Begin() { return cross_.Begin(); }
  // After a layer's own attention: adds to activations->attended.
  void Run(int layer, Activations* activations);

 private:
  class Sequence;

  static constexpr int kAppendedRows = 64;  // at a time

  TargetReader(const ModelConfig& config, CrossLayers weights,
               kernels::Backend* backend);

  const int hidden_size_;
  const TargetRowShape shape_;
  const ModelConfig heads_;
  const CrossLayers weights_;
  kernels::Backend* const backend_;
  std::unique_ptr<KvPool> pool_;
  StepValues rows_;  // on their way into pool_, kAppendedRows
  CrossAttention cross_;
};

}  // namespace nacre::model

#endif  // MODEL_TARGET_READER_H_
