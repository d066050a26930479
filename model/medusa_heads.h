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
#include "model/language_model.h"
#include "model/medusa_files.h"

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
  // UNIMPLEMENTED: a pickle, a type of tensors, a model whose backend is no
  // host's. `model` outlives the heads.
  static absl::StatusOr<std::unique_ptr<MedusaHeads>> Load(
      const std::string& path, const LanguageModel& model);

  int count() const override { return static_cast<int>(heads_.size()); }
  absl::Span<const float> Run(absl::Span<const float> hidden) override;

  // One line: heads, blocks, vocabulary, bytes.
  const std::string& description() const { return description_; }

 private:
  struct Block {
    std::unique_ptr<kernels::PackedMatrix> weight;
    std::vector<float> bias;  // or none
  };
  struct Head {
    std::vector<Block> blocks;
    std::unique_ptr<kernels::PackedMatrix> vocabulary;  // or the shared one
  };
  MedusaHeads(const ModelInfo& info, const VocabularyHead& target)
      : hidden_size_(static_cast<size_t>(info.hidden_size)),
        vocab_size_(static_cast<size_t>(info.vocab_size)),
        target_(target) {}

  // Fills in what Load returns; `folder`: of the files beside the tensors.
  absl::Status LoadFolder(const std::string& folder, const LanguageModel& model,
                          const Checkpoint& checkpoint);
  absl::Status LoadTensors(const Checkpoint& checkpoint,
                           const MedusaLayout& layout);
  absl::Status MakeRoom();
  absl::StatusOr<Head> LoadHead(const Checkpoint& checkpoint,
                                const MedusaLayout::Head& layout);
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> LoadVocabulary(
      const Checkpoint& checkpoint, const std::string& name);
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Pack(
      const Checkpoint& checkpoint, const std::string& name,
      const kernels::HostMatrix& matrix);
  // All blocks of a head, in place.                  x [rows, hidden_size]
  void RunBlocks(const Head& head, int rows, float* x);
  // The logits of `rows` rows.   x [rows, hidden_size], out [rows, vocab_size]
  void RunVocabulary(const kernels::PackedMatrix& vocabulary, const float* x,
                     int rows, float* out);

  const size_t hidden_size_;
  const size_t vocab_size_;
  const VocabularyHead target_;
  std::vector<Head> heads_;
  std::unique_ptr<kernels::PackedMatrix> shared_;  // of all heads; null: none
  std::vector<int64_t> token_map_;  // of vocabularies of fewer rows; or none
  float logit_scale_ = 1;
  int64_t size_bytes_ = 0;  // in the file
  std::string description_;

  // Of the call being made.
  std::unique_ptr<kernels::Buffer> states_;  // [count(), rows, hidden_size]
  std::unique_ptr<kernels::Buffer> gates_;   // [rows, hidden_size]
  std::unique_ptr<kernels::Buffer> said_;    // [count(), rows, mapped tokens]
  std::unique_ptr<kernels::Buffer> logits_;
};

}  // namespace nacre::model

#endif  // MODEL_MEDUSA_HEADS_H_
