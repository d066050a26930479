// A model whose weights and KV cache are split among ranks (tensor parallel).
// Each rank is a Transformer over its share, with a backend, cores and a thread
// of its own; the first is on the caller's thread. All do the same with the
// same sequences, so they agree without a word but for the sums of
// kernels/rank_backend.h. Outputs are the same bits for 1, 2, 4 and 8 ranks.
//
// The ranks are all in one process, or on several nodes, each with as many
// (kernels/node_link.h). Then this is those of one node, and whoever owns it
// sees to it that all nodes do the same (model/ranks/). Logits, features and
// hidden states are those of node 0 alone.
//
// A rank that fails ends the others' step, and with it the model: every Forward
// after it fails, too. Only what is refused before a step begins,
// INVALID_ARGUMENT, leaves the model as it was.
//
// It shows features and final hidden states, which every rank has whole. It
// shows no vocabulary head and no keys and values, of which no rank has all. It
// cannot be interrupted, and begins no step early: ranks would have to agree on
// when. On devices rank 0, which gathers the logits, draws tokens of them.
//
// Thread-compatible, as any LanguageModel.

#ifndef MODEL_TENSOR_PARALLEL_MODEL_H_
#define MODEL_TENSOR_PARALLEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend_factory.h"
#include "kernels/collective.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/float_view.h"
#include "kernels/node_link.h"
#include "kernels/rank_backend.h"
#include "model/config.h"
#include "model/language_model.h"
#include "model/model_options.h"

namespace nacre::model {

class TensorParallelModel : public LanguageModel {
 public:
  // As LoadModel. `backend` is of all ranks: its cores are dealt out to them in
  // order, a thread each; none: an unpinned thread each. On "cuda" threads
  // are unpinned, and each rank has the next of its devices. `options` are of
  // all ranks together. So is max_memory_bytes. Errors of CheckSplit,
  // CreateBackend and LoadModel, too; INVALID_ARGUMENT for a number of ranks
  // other than 1, 2, 4 and 8, for cores that they cannot share evenly, for too
  // few devices, and for ranks that share one without max_memory_bytes or
  // kv_cache_bytes; UNIMPLEMENTED for quantized checkpoints.
  // With a `link`, which outlives the model, cores and devices are of this
  // node's ranks alone. Memory and `ranks` are still of all nodes together.
  static absl::StatusOr<std::unique_ptr<TensorParallelModel>> Load(
      const std::string& dir, const kernels::BackendOptions& backend, int ranks,
      const ModelOptions& options, kernels::NodeLink* link = nullptr);

  const ModelInfo& info() const override { return info_; }
  void BindComputeThread() override {
    threads_.BindCaller();
    models_.front()->BindComputeThread();
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return NewTreeSequence(max_length, 0, {});
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override {
    return NewTreeSequence(max_length, 0, token_ids);
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override;
  int shared_block_size() const override {
    return models_.front()->shared_block_size();
  }
  // Each rank copies its part of a block, one rank after the other.
  int blocks_brought_at_once() const override;
  int64_t kv_free_tokens() const override {
    return models_.front()->kv_free_tokens();
  }
  // As of LanguageModel, and INTERNAL or what a rank failed with, from then on.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  bool draws_tokens() const override { return models_.front()->draws_tokens(); }
  absl::Span<const int32_t> drawn_tokens() const override {
    return models_.front()->drawn_tokens();
  }
  kernels::FloatView final_hidden() override {
    return models_.front()->final_hidden();
  }
  absl::Status SetTaps(absl::Span<const FeatureTap> taps) override {
    return models_.front()->SetTaps(taps);
  }
  absl::Span<const float> features(int tap) const override {
    return models_.front()->features(tap);
  }
  uint64_t forward_progress() const override {
    return models_.front()->forward_progress();
  }

  // For logs: what each rank computes on, and what they meet by.
  std::string backend_description() const;
  // Ends the model, and a Forward that is under way, as if a rank had failed
  // with `reason`. Any thread may call it.
  void Abort(const absl::Status& reason) { backends_.front()->Abort(reason); }

 private:
  // `cpus`: of each rank's first thread.
  explicit TensorParallelModel(std::vector<int> cpus)
      : threads_(std::move(cpus)) {}

  // Makes the backends of this node's ranks, on the cores of each.
  absl::Status CreateBackends(const kernels::BackendOptions& backend,
                              const std::vector<std::vector<int>>& cores,
                              kernels::NodeLink* link);
  // On each rank; an error ends all.
  absl::Status LoadRanks(const std::string& dir, const ModelConfig& config,
                         const ModelOptions& options);
  absl::Status LoadRank(const std::string& dir, size_t rank,
                        const ModelOptions& options);
  // Calls task(rank) on each rank's thread; the first error that is not only
  // another rank's ends all ranks and is returned.
  absl::Status OnEveryRank(
      const std::function<absl::Status(size_t rank)>& task);

  ModelInfo info_;
  // Of this node's ranks, in order, each of these.
  kernels::ThreadPool threads_;
  std::vector<std::unique_ptr<kernels::Collective>> collectives_;
  std::vector<std::unique_ptr<kernels::RankBackend>> backends_;
  bool by_nccl_ = false;  // ranks on devices meet so
  std::string why_host_;  // and not so, where they might
  std::vector<std::unique_ptr<LanguageModel>> models_;
  std::vector<std::vector<SequenceRows>> batches_;  // of each rank
  std::vector<int> lengths_;                        // before a step
  std::vector<absl::Status> statuses_;              // of each rank
  absl::Status failure_;                            // for good
};

}  // namespace nacre::model

#endif  // MODEL_TENSOR_PARALLEL_MODEL_H_
