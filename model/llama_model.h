// Llama-family transformer over any kernels::Backend. Forward takes a ragged
// batch of rows of any number of sequences: prefill, decode and verify are the
// same function. A row's logits are the same bits in every batch, because every
// op of a Backend promises it.
//
// Thread-compatible: one thread, the engine's.

#ifndef MODEL_LLAMA_MODEL_H_
#define MODEL_LLAMA_MODEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/head_outputs.h"
#include "model/kv_budget.h"
#include "model/kv_pool.h"
#include "model/language_model.h"
#include "model/progress.h"
#include "model/rope.h"
#include "model/weights.h"

namespace nacre::model {

struct LlamaModelOptions {
  int64_t kv_cache_bytes = int64_t{256} << 20;
  ProgressCallback progress;  // may be empty; stage "weights"
  bool prefix_cache = false;  // whether sequences share equal beginnings
  // On a device with memory of its own, in place of kv_cache_bytes.
  absl::optional<KvBudget> kv_budget;
};

class LlamaModel : public LanguageModel {
 public:
  // Reads a Hugging Face folder. Errors of ReadConfig, Checkpoint::Open,
  // LoadWeights, KvBytes and KvPool::Create. `backend` outlives the model.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Load(
      const std::string& dir, kernels::Backend* backend,
      const LlamaModelOptions& options);

  // The same of weights at hand; the fingerprint is of `config_json` and them.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Create(
      ModelConfig config, absl::string_view config_json,
      std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
      const LlamaModelOptions& options);

  const ModelConfig& config() const { return config_; }

  const ModelInfo& info() const override { return info_; }
  void BindComputeThread() override { backend_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return NewSequenceWithPrefix(max_length, {});
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override;
  int shared_block_size() const override {
    return kv_pool_->prefix_cache() ? KvPool::kBlockSize : 0;
  }
  int64_t kv_free_tokens() const override { return kv_pool_->free_tokens(); }

  // INVALID_ARGUMENT for a token id outside the vocabulary. Our own bugs,
  // fatal: a sequence past its reserved length, twice in the batch, without
  // rows, or of another model; and what HeadOutputs says of draws.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  bool draws_tokens() const override {
    return backend_->token_drawer() != nullptr;
  }
  absl::Span<const int32_t> drawn_tokens() const override {
    return outputs_.drawn_tokens();
  }
  absl::Span<const float> final_hidden() override;
  void SetInterrupt(std::function<bool()> interrupt) override {
    interrupt_ = std::move(interrupt);
  }
  uint64_t forward_progress() const override { return layers_finished_; }

 private:
  // Scratch of one Forward, grown to the largest batch and then reused.
  struct Activations {
    int max_rows = 0;
    std::unique_ptr<kernels::Buffer>
        hidden;  // [rows, hidden_size]: between layers
    std::unique_ptr<kernels::Buffer> normed;     // [rows, hidden_size]
    std::unique_ptr<kernels::Buffer> qkv;        // [rows, q + 2 kv]
    std::unique_ptr<kernels::Buffer> attention;  // [rows, q]
    std::unique_ptr<kernels::Buffer>
        attended;  // [rows, hidden_size]: in the middle of one
    std::unique_ptr<kernels::Buffer> gate_up;  // [rows, 2 * intermediate]
    std::unique_ptr<kernels::Buffer> mlp;      // [rows, intermediate]
    std::unique_ptr<kernels::Buffer> cos;      // [rows, head_dim / 2]
    std::unique_ptr<kernels::Buffer> sin;      // [rows, head_dim / 2]
    int max_logit_rows = 0;
    std::unique_ptr<kernels::Buffer> logits;  // [logit rows, vocab_size]
  };

  LlamaModel(ModelConfig config, kernels::Backend* backend)
      : config_(std::move(config)),
        backend_(backend),
        rope_(config_),
        outputs_(backend, config_.vocab_size) {}

  absl::Status CheckBatch(absl::Span<const SequenceRows> batch) const;
  absl::Status GrowActivations(int num_rows, int num_logit_rows);
  void GatherRows(absl::Span<const SequenceRows> batch);
  void RunLayer(const LayerWeights& weights, const kernels::KvLayer& kv);
  void RunHead(absl::Span<const SequenceRows> batch, int num_logit_rows);

  ModelConfig config_;
  kernels::Backend* backend_;
  std::unique_ptr<Checkpoint> checkpoint_;  // holds the embedding table
  Weights weights_;
  std::unique_ptr<KvPool> kv_pool_;
  RopeTable rope_;
  ModelInfo info_;
  std::function<bool()> interrupt_;

  Activations activations_;
  std::atomic<uint64_t> layers_finished_{0};   // written by Forward only
  std::vector<int32_t> token_ids_;             // of the batch's rows
  std::vector<kernels::RowContext> contexts_;  // of the batch's rows
  std::vector<float> cos_;  // host copies of the rows' angles
  std::vector<float> sin_;
  HeadOutputs outputs_;
  size_t hidden_values_ = 0;  // of the last Forward's logit rows
  std::vector<float> host_hidden_;
};

}  // namespace nacre::model

#endif  // MODEL_LLAMA_MODEL_H_
