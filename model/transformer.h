// The transformer of every family (model/families.h) over any kernels::Backend.
// Forward takes a ragged batch of rows of any number of sequences: prefill,
// decode and verify are the same function. A row's logits are the same bits in
// every batch, because every op of a Backend promises it.
//
// Thread-compatible: one thread, the engine's.

#ifndef MODEL_TRANSFORMER_H_
#define MODEL_TRANSFORMER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/activations.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/head_outputs.h"
#include "model/kept_features.h"
#include "model/kv_pool.h"
#include "model/language_model.h"
#include "model/layer_runner.h"
#include "model/model_options.h"
#include "model/queued_step.h"
#include "model/step_rows.h"
#include "model/target_reader.h"
#include "model/weights.h"

namespace nacre::model {

class Transformer : public LanguageModel {
 public:
  // As CreateModel of model/load_model.h. `backend` outlives the model.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(
      ModelConfig config, absl::string_view config_json,
      std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
      const ModelOptions& options);

  const ModelInfo& info() const override { return info_; }
  void BindComputeThread() override { backend_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return NewSequenceWithPrefix(max_length, {});
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override {
    return NewTreeSequence(max_length, 0, token_ids);
  }
  // INVALID_ARGUMENT also for a number of slots that is outside 0 to
  // kMostSlots. Rows of prompts are computed as the backend's PromptProducts
  // are; without those as all others.
  absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override {
    return NewPromptSequence(0, max_length, num_slots, token_ids);
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewPromptSequence(
      int prompt_positions, int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override;
  int shared_block_size() const override {
    return kv_pool_->prefix_cache() ? KvPool::kBlockSize : 0;
  }
  int blocks_brought_at_once() const override {
    return kv_pool_->blocks_brought_at_once();
  }
  int64_t kv_free_tokens() const override { return kv_pool_->free_tokens(); }

  // As of LanguageModel. Our own bugs are fatal. Such is a sequence past its
  // reserved length, twice in the batch, without rows, with more nodes than
  // rows, or of another model. So is what breaks HeadOutputs' rules of draws or
  // SequenceRows' of next_draw.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  bool draws_tokens() const override {
    return backend_->token_drawer() != nullptr;
  }
  absl::Span<const int32_t> drawn_tokens() const override {
    return outputs_[current_].drawn_tokens();
  }
  QueuedSteps queued_steps() const override { return queued_steps_; }
  kernels::FloatView final_hidden() override;
  absl::optional<VocabularyHead> vocabulary_head() const override {
    const auto* const embedding =
        weights_.embedding_scale == 1 ? weights_.embedding.get() : nullptr;
    return VocabularyHead{backend_, weights_.head.get(),
                          static_cast<float>(config_.soft_caps.final),
                          embedding};
  }
  absl::optional<KeptKv> kept_kv() const override {
    return KeptKv{kv_pool_->layers(), config_.num_attention_heads,
                  config_.rotary_size() == config_.head_dim};
  }
  const int32_t* KvTable(const Sequence& sequence) override;
  absl::Status SetTaps(absl::Span<const FeatureTap> taps) override;
  absl::Span<const float> features(int tap) const override {
    return features_.At(static_cast<size_t>(tap));
  }
  RowReader* row_reader() override { return target_.get(); }
  void SetInterrupt(std::function<bool()> interrupt) override {
    interrupt_ = std::move(interrupt);
  }
  uint64_t forward_progress() const override { return layers_finished_; }

 private:
  Transformer(ModelConfig config, kernels::Backend* backend)
      : config_(std::move(config)),
        backend_(backend),
        rows_(config_),
        runner_(config_, backend, &rows_, &activations_),
        features_(backend),
        outputs_{{backend, config_.vocab_size}, {backend, config_.vocab_size}} {
  }

  absl::Status CheckBatch(absl::Span<const SequenceRows> batch) const;
  // Whether `batch` is the step that is queued, which then is the current one.
  bool TakeQueued(absl::Span<const SequenceRows> batch);
  // Queues `batch` as the current step. ABORTED; what has no room.
  absl::Status QueueStep(absl::Span<const SequenceRows> batch);
  // Queues what `batch`, the current step, says of the step after it. A model
  // that keeps features, or reads a target, queues nothing.
  void QueueNext(absl::Span<const SequenceRows> batch);

  // `inputs` without what rows_ and the model know; `embed` queues what fills
  // activations_.hidden. Returns how many layers were queued: all, unless
  // `may_end` and the interrupt said so.
  size_t RunLayers(kernels::StepInputs inputs, absl::FunctionRef<void()> embed,
                   bool may_end);
  void RunHead();

  ModelConfig config_;
  kernels::Backend* backend_;
  Weights weights_;
  std::unique_ptr<KvPool> kv_pool_;
  ModelInfo info_;
  std::function<bool()> interrupt_;

  Activations activations_;
  // Rows of the largest step, where there is room for it from the first one on:
  // what a device has recorded serves while nothing moves.
  int room_rows_ = 0;
  std::atomic<uint64_t> layers_finished_{0};  // written by Forward only
  StepRows rows_;  // of the step that is being queued
  LayerRunner runner_;
  KeptFeatures features_;
  std::unique_ptr<TargetReader> target_;  // of a GliDe draft; null: it is none

  // In turn of the current step, the last that was asked for, and of the one
  // queued after it, if any.
  HeadOutputs outputs_[2];
  int current_ = 0;
  int64_t mark_ = 0;  // after the current step
  QueuedStep queued_;
  int64_t queued_mark_ = 0;
  QueuedSteps queued_steps_;
  size_t hidden_values_ = 0;  // of the last Forward's logit rows
};

}  // namespace nacre::model

#endif  // MODEL_TRANSFORMER_H_
