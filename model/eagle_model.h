// An EAGLE draft beside its target, from a published folder (eagle_files.h,
// eagle_config.h). With e the embedding of a token and f the target's features
// of the position before it:
//
//   EAGLE-3  h = fc(f); a Llama layer over [norm(e); norm(h)] whose residual is
//            h; logits = head(norm(out))
//   EAGLE-1  h = fc([e; f]), perhaps with e and f normed; a Llama layer without
//            its first norm; logits = the target's head(out)
//
// What the layer gives is the next row's h, or f. Only backends of the host run
// it: the target's own, or elsewhere one over the target's tables.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_EAGLE_MODEL_H_
#define MODEL_EAGLE_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/eagle_config.h"
#include "model/eagle_folder.h"
#include "model/eagle_weights.h"
#include "model/feature_drafter.h"
#include "model/feature_step.h"
#include "model/language_model.h"

namespace nacre::model {

class EagleModel final : public FeatureDrafter {
 public:
  // `path`: a folder with config.json and the tensors as of OpenDraftTensors,
  // or the file of these beside it. Where there is a nacre_draft.json, its
  // "target_fingerprint" must be the model's. Its KV cache has room for as many
  // tokens as the target's.
  //
  // NOT_FOUND: there is no such file. INVALID_ARGUMENT: it is malformed, or is
  // not this model's draft, with the tensor and both shapes, or the field and
  // its value. UNIMPLEMENTED: a type of tensors, a variant that is
  // not known here, a model whose backend is no host's. `model` outlives the
  // draft, and keeps its taps from now on.
  static absl::StatusOr<std::unique_ptr<EagleModel>> Load(
      const std::string& path, LanguageModel* model);

  // Of a draft that runs elsewhere: features are what EagleProjection makes of
  // the target's, [hidden_size()]. `info` and `target` are the target's; what
  // those tables lie in outlives the draft, whose KV cache has room for
  // info.kv_capacity_tokens. Errors as of Load.
  static absl::StatusOr<std::unique_ptr<EagleModel>> LoadWithoutTarget(
      const std::string& path, const OpenedEagle& opened, const ModelInfo& info,
      const VocabularyHead& target);

  absl::Span<const FeatureTap> taps() const override { return config_.taps; }
  int feature_size() const override {
    return projects_ ? static_cast<int>(config_.taps.size()) * config_.tap_size
                     : hidden_size();
  }
  int hidden_size() const { return config_.llama.hidden_size; }
  int64_t kv_free_tokens() const { return step_.kv_free_tokens(); }
  int max_depth() const override { return config_.max_depth; }
  absl::StatusOr<std::unique_ptr<FeatureSequence>> NewSequence(
      int max_length, int num_slots) override;
  // Our own bugs, fatal: those of FeatureStep::Begin.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const FeatureRows> batch) override;

  // One line: kind, parameters, bytes, the target's layers, vocabulary.
  const std::string& description() const { return description_; }

 private:
  // Scratch, each [rows, columns].
  struct Scratch {
    std::vector<float> features;  // rows beside features, all taps
    std::vector<float> projected;
    std::vector<float> embedded;  // all rows from here on
    std::vector<float> given;     // what each row has beside its token
    std::vector<float> joined;    // [embedded; given]
    std::vector<float> out;       // rows that have logits
    std::vector<float> logits;    // [.., vocab_size]
  };

  EagleModel(EagleConfig config, EagleWeights weights, bool is_third,
             bool projects, const ModelInfo& info,
             const VocabularyHead& target);
  // Of what was opened; `projects`: it does what EagleProjection does itself.
  static absl::StatusOr<std::unique_ptr<EagleModel>> Create(
      const std::string& path, const OpenedEagle& opened, bool projects,
      const ModelInfo& info, const VocabularyHead& target);
  absl::Status Finish(const ModelInfo& info);

  // The features of the rows that have some, as the layer is given them.
  void Project(absl::Span<const FeatureRows> batch);
  // What each row has beside its token.
  void Gather(absl::Span<const FeatureRows> batch);
  // By the norms of embeddings and of what the rows have beside their tokens.
  void NormInputs();
  void Join();
  // Fills activations.hidden of the step.
  void RunLayer();
  void RunHead();
  // What rows that build on those with logits will be given.
  void KeepOutputs(absl::Span<const FeatureRows> batch);

  const EagleConfig config_;
  const EagleWeights weights_;
  const bool is_third_;
  const bool projects_;
  const size_t hidden_;
  const size_t vocab_size_;  // the target's
  const VocabularyHead target_;
  FeatureStep step_;
  Scratch scratch_;
  std::string description_;
};

}  // namespace nacre::model

#endif  // MODEL_EAGLE_MODEL_H_
