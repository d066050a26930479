// An EAGLE draft on a worker of its own. Its target sends features, projected
// for it (eagle_projection.h); of the target's checkpoint it needs the
// embedding and the head alone, as far as it has none itself.
//
// A token stands beside the features of the position before it. The first token
// of a text has none, and no row: where it is asked, the draft knows nothing. A
// token beyond the features stands beside what the draft gave for the one
// before it, as in its training. Once its features are there the row is
// computed anew.
//
// Only backends of the host run it. It shares no prefixes.
//
// Thread-compatible, as LanguageModel.

#ifndef MODEL_REMOTE_EAGLE_H_
#define MODEL_REMOTE_EAGLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/eagle_model.h"
#include "model/feature_drafter.h"
#include "model/kv_budget.h"
#include "model/kv_pool.h"
#include "model/language_model.h"
#include "model/model_options.h"
#include "model/target_sequence.h"
#include "model/weights.h"

namespace nacre::model {

class RemoteEagle final : public LanguageModel, public RowReader {
 public:
  // `path` as of OpenEagle; `target_dir` as LoadModel reads it. Errors of both,
  // of LoadVocabulary, of ModelOptions::admit and of KvBytes. `backend`
  // outlives the draft.
  static absl::StatusOr<std::unique_ptr<RemoteEagle>> Load(
      const std::string& path, const std::string& target_dir,
      kernels::Backend* backend, const ModelOptions& options);

  // What its keys and values take for each position, on this backend.
  static absl::StatusOr<KvPool::Shape> ReadKvShape(
      const std::string& path, const std::string& target_dir,
      kernels::DType kv_type);

  // What EagleModel takes of a device beside its target. Errors of Load.
  static absl::StatusOr<DraftNeeds> ReadNeeds(const std::string& path,
                                              const std::string& target_dir,
                                              kernels::DType kv_type,
                                              int step_rows);

  const ModelInfo& info() const override { return info_; }
  void BindComputeThread() override { backend_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return NewTreeSequence(max_length, 0, {});
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override;
  int64_t kv_free_tokens() const override { return eagle_->kv_free_tokens(); }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  RowReader* row_reader() override { return this; }

  // As RowReader.
  const TargetRowShape& shape() const override { return shape_; }
  std::string draft_fingerprint() const override { return info_.fingerprint; }
  int max_lag() const override { return max_lag_; }
  absl::StatusOr<std::unique_ptr<TargetSequence>> NewTargetSequence(
      int max_length) override;

 private:
  class Text;
  class Features;
  // A sequence's part of the call being made.
  struct Part {
    int known_end = 0;   // tokens before it stand beside features from now on
    int num_silent = 0;  // logits of tokens that have no row
    // Of the others, in this order: of rows that are computed anew, not asked
    // for, asked for.
    int num_again = 0;
    int num_unasked = 0;
    int num_asked = 0;
  };

  explicit RemoteEagle(kernels::Backend* backend) : backend_(backend) {}

  // Makes of the nodes, which stand at positions of tokens, nodes after rows.
  absl::Status CheckRows(const SequenceRows& rows,
                         std::vector<TreeNode>* nodes) const;
  // Adds to rows_ and parts_: tokens that stand beside features since the last
  // call once more, then the new ones.
  void PlanRows(const SequenceRows& rows, absl::Span<const TreeNode> nodes);
  // What was asked for of all of `logits`.
  absl::Span<const float> Pick(absl::Span<const float> logits);

  kernels::Backend* const backend_;
  Weights tables_;  // of the target: embedding and head, or none
  std::unique_ptr<EagleModel> eagle_;
  TargetRowShape shape_;
  int max_lag_ = 0;
  ModelInfo info_;
  // Of the call being made.
  std::vector<FeatureRows> rows_;
  std::vector<Part> parts_;
  std::vector<std::vector<TreeNode>> nodes_;
  std::vector<float> logits_;
};

}  // namespace nacre::model

#endif  // MODEL_REMOTE_EAGLE_H_
