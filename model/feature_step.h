// What drafts over a target's features (feature_drafter.h) do alike in a call.
// It holds their own KV cache, the rows of the call, and which of them have
// logits.
//
// Thread-compatible, as the draft that owns it.

#ifndef MODEL_FEATURE_STEP_H_
#define MODEL_FEATURE_STEP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/feature_drafter.h"
#include "model/kv_pool.h"
#include "model/language_model.h"
#include "model/layer_runner.h"
#include "model/step_rows.h"
#include "model/step_values.h"

namespace nacre::model {

// The KV of a draft's rows.
class OwnKvSequence : public FeatureSequence {
 public:
  explicit OwnKvSequence(std::unique_ptr<KvSequence> kv) : kv_(std::move(kv)) {}

  int length() const override { return kv_->length(); }
  void Clear() override { kv_->Truncate(0); }
  KvSequence* kv() { return kv_.get(); }

 private:
  const std::unique_ptr<KvSequence> kv_;
};

// Those that are no nodes.
inline size_t NumPositions(const FeatureRows& rows) {
  return rows.token_ids.size() - rows.nodes.size();
}

// Where the first of them stands.
inline int FirstRow(const FeatureRows& rows) {
  return rows.first_row == FeatureRows::kNextRow ? rows.sequence->length()
                                                 : rows.first_row;
}

// UNIMPLEMENTED where the model keeps nothing that a draft of this kind ("an
// EAGLE draft") reads.
absl::Status CheckKeepsFeatures(const LanguageModel& model, const char* kind);

class FeatureStep {
 public:
  // `config`: of the draft's layers. Both outlive it.
  FeatureStep(const ModelConfig& config, kernels::Backend* backend)
      : config_(config),
        backend_(backend),
        rows_(config),
        runner_(config, backend, &rows_, &activations_),
        out_(backend),
        logits_(backend) {}

  // Once, before all others: a KV cache for so many tokens, one block at least.
  // RESOURCE_EXHAUSTED where the backend has no room.
  absl::Status MakeKvCache(int64_t tokens);
  // RESOURCE_EXHAUSTED where that has no room.
  absl::StatusOr<std::unique_ptr<KvSequence>> Reserve(int max_length,
                                                      int num_slots);

  // Takes the rows of a call, whose sequences are OwnKvSequences, and makes
  // room for them; `more`: what else needs some, which rows() tells.
  // RESOURCE_EXHAUSTED: nothing has changed. Our own bugs,
  // fatal: nodes that TreeSlots::CheckNodes refuses, rows past the reserved
  // length, more features than `feature_size` for each row that is no node.
  absl::Status Begin(absl::Span<const FeatureRows> batch, int feature_size,
                     absl::FunctionRef<absl::Status()> more);
  // Of rows of activations()->hidden, those that have logits: in memory of the
  // backend, until the next call.               [num_logit_rows, hidden_size]
  float* GatherLogitRows();
  // Queues what brings activations()->logits to the host.
  void BringLogits() { logits_.Bring(activations_.logits->f32(), NumLogits()); }
  // Waits for the rows, also where none has logits: the caller takes the time
  // that they took. Errors of the backend: nothing has changed.
  absl::Status Wait(absl::Span<const FeatureRows> batch);
  // Then the sequences are longer.
  static void End(absl::Span<const FeatureRows> batch);
  // Those of the rows, after Wait.               [num_logit_rows, vocab_size]
  absl::Span<const float> logits() const { return logits_.Get(0, NumLogits()); }

  int64_t kv_free_tokens() const { return kv_pool_->free_tokens(); }
  const StepRows& rows() const { return rows_; }
  Activations* activations() { return &activations_; }
  LayerRunner* runner() { return &runner_; }
  const kernels::KvLayer& kv(int layer) const { return kv_pool_->layer(layer); }

 private:
  size_t NumLogits() const {
    return static_cast<size_t>(rows_.num_logit_rows()) *
           static_cast<size_t>(config_.vocab_size);
  }
  absl::Status MakeRoom(absl::FunctionRef<absl::Status()> more);

  const ModelConfig& config_;
  kernels::Backend* const backend_;
  std::unique_ptr<KvPool> kv_pool_;
  StepRows rows_;
  Activations activations_;
  LayerRunner runner_;
  std::vector<int32_t> logit_rows_;
  StepValues out_;
  BroughtValues logits_;
};

}  // namespace nacre::model

#endif  // MODEL_FEATURE_STEP_H_
