// Medusa heads beside a target's own, from a published file (medusa_files.h).
// They compute z = SiLU(W x + b) + x in each block, then the logits of a
// vocabulary, the head's own or the target's. The products are the backend's;
// only backends of the host run them.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_MEDUSA_HEADS_H_
#define MODEL_MEDUSA_HEADS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/future_heads.h"
#include "model/kv_budget.h"
#include "model/language_model.h"
#include "model/medusa_files.h"
#include "model/step_values.h"

namespace nacre::model {

class MedusaHeads final : public FutureHeads {
 public:
  // `path`: a file of safetensors, or a folder with medusa_lm_head.safetensors,
  // model.safetensors or its index. Of config.json beside it "logit_scale" is
  // read; heads and blocks are those that the file has. Where there is a
  // nacre_draft.json, its "target_fingerprint" must be the model's.
  //
  // NOT_FOUND: there is no such file. INVALID_ARGUMENT: it is malformed, or
  // these heads are not this model's, with the tensor and both shapes.
  // UNIMPLEMENTED: a pickle, a type of tensors, a model that shows no hidden
  // states. `model` outlives the heads.
  static absl::StatusOr<std::unique_ptr<MedusaHeads>> Load(
      const std::string& path, const LanguageModel& model);

  // What they take of a device beside a model of this config. Errors of Load.
  static absl::StatusOr<DraftNeeds> ReadNeeds(const std::string& path,
                                              const ModelConfig& target);

  int count() const override { return static_cast<int>(heads_.size()); }
  absl::Span<const float> Run(absl::Span<const float> hidden) override;

  // One line: heads, blocks, vocabulary, bytes.
  const std::string& description() const { return description_; }

 private:
  struct Block {
    std::unique_ptr<kernels::PackedMatrix> weight;
    std::unique_ptr<kernels::Buffer> bias;  // null: none
  };
  struct Head {
    std::vector<Block> blocks;
    std::unique_ptr<kernels::PackedMatrix> vocabulary;  // or the shared one
  };
  MedusaHeads(const ModelInfo& info, const VocabularyHead& target)
      : hidden_size_(static_cast<size_t>(info.hidden_size)),
        vocab_size_(static_cast<size_t>(info.vocab_size)),
        target_(target),
        states_(target.backend),
        gates_(target.backend),
        inputs_(target.backend),
        gated_(target.backend),
        values_(target.backend),
        brought_(target.backend) {}

  // Fills in what Load returns; `folder`: of the files beside the tensors.
  absl::Status LoadFolder(const std::string& folder, const LanguageModel& model,
                          const Checkpoint& checkpoint);
  absl::Status LoadTensors(const Checkpoint& checkpoint,
                           const MedusaLayout& layout);
  absl::Status MakeRoom();
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> LoadBias(
      const Checkpoint& checkpoint, const std::string& name);
  absl::StatusOr<Head> LoadHead(const Checkpoint& checkpoint,
                                const MedusaLayout::Head& layout);
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> LoadVocabulary(
      const Checkpoint& checkpoint, const std::string& name);
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Pack(
      const Checkpoint& checkpoint, const std::string& name,
      const kernels::HostMatrix& matrix);
  // All blocks of a head, in place.                  x [rows, hidden_size]
  void RunBlocks(const Head& head, int rows, float* x);
  // Queues the logits of `rows` rows, which are brought to those of `first` on.
  //                                                      x [rows, hidden_size]
  void RunVocabulary(const kernels::PackedMatrix& vocabulary, const float* x,
                     int rows, size_t first);
  // Queues all of a call.
  void RunAll(absl::Span<const float> hidden);
  // Those that were brought, of the target's tokens.
  absl::Span<const float> MapLogits(size_t rows);

  const size_t hidden_size_;
  const size_t vocab_size_;
  const VocabularyHead target_;
  std::vector<Head> heads_;
  std::unique_ptr<kernels::PackedMatrix> shared_;  // of all heads; null: none
  std::vector<int64_t> token_map_;  // of vocabularies of fewer rows; or none
  float logit_scale_ = 1;
  int64_t size_bytes_ = 0;  // in the file
  std::string description_;

  // A vocabulary's values, of several rows.
  struct Said {
    size_t first = 0;  // of the logits
    size_t rows = 0;
    size_t width = 0;
  };

  // Of the call being made.
  std::vector<int32_t> beside_ones_;  // of gates_, each row and the ones
  std::vector<Said> said_;
  StepValues states_;          // [count(), rows, hidden_size]
  StepValues gates_;           // [kMaxRows, hidden_size], then ones
  StepValues inputs_;          // [rows, 2 * hidden_size], gates and ones
  StepValues gated_;           // [rows, hidden_size]
  StepValues values_;          // [count(), rows, vocab_size], or fewer tokens
  BroughtValues brought_;      // likewise
  std::vector<float> logits_;  // of tokens that were mapped
};

}  // namespace nacre::model

#endif  // MODEL_MEDUSA_HEADS_H_
