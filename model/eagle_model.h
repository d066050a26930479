// An EAGLE draft beside its target, from a published folder (eagle_files.h,
// eagle_config.h). With e the embedding of a token and f the target's features
// of the position before it:
//
//   EAGLE-3  h = fc(f); a Llama layer over [norm(e); norm(h)] whose residual is
//            h; logits = head(norm(out))
//   EAGLE-1  h = fc([e; f]), perhaps with e and f normed; a Llama layer without
//            its first norm; logits = the target's head(out)
//
// What the layer gives is the next row's h, or f. It runs on the target's own
// backend, or elsewhere on one over the target's tables.
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
#include "model/eagle_projection.h"
#include "model/eagle_weights.h"
#include "model/feature_drafter.h"
#include "model/feature_step.h"
#include "model/language_model.h"
#include "model/step_values.h"

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
  // its value. UNIMPLEMENTED: a type of tensors, a variant that is not known
  // here, a model that keeps no features. `model` outlives the draft, and keeps
  // its taps from now on.
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
    explicit Scratch(kernels::Backend* backend)
        : sources(backend), inputs(backend), joined(backend), out(backend) {}

    std::vector<float> features;  // rows beside features, all taps
    std::vector<float> others;    // what the draft gave for rows before
    std::vector<int32_t> given;   // of sources, that of each row
    std::vector<int32_t> by_row;  // of inputs, those of each row
    StepValues sources;           // of features, of `others`, zeros
    StepValues inputs;            // embeddings of all rows, then what is given
    StepValues joined;            // [embedding; given] of each row
    BroughtValues out;            // rows that have logits
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

  // Finds what each row has beside its token, makes room for it, and sends what
  // lies on the host.
  absl::Status Send(absl::Span<const FeatureRows> batch);
  void AddGiven(const FeatureRows& rows, int first_source, int first_other,
                int zeros);
  float* embedded() const { return scratch_.inputs.data(); }  // of all rows
  float* given() const { return embedded() + NumValues(); }
  // Of all rows.
  size_t NumValues() const {
    return static_cast<size_t>(step_.rows().size()) * hidden_;
  }
  void Copy(const float* from, int rows, float* to);
  // By the norms of embeddings and of what the rows have beside their tokens.
  void NormInputs();
  void Join();
  // Fills activations.hidden of the step.
  void RunLayer();
  void RunHead();
  // Of the target's tokens.
  absl::Span<const float> MapLogits();
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
  TapProjector projector_;
  Scratch scratch_;
  std::string description_;
};

}  // namespace nacre::model

#endif  // MODEL_EAGLE_MODEL_H_
