// A GliDe draft beside its target (arXiv:2402.02082), from a folder of Llama's
// names (glide_weights.h). It is a small Llama whose layers also attend to what
// the target has kept of the text,
//
//   h += self attention(norm(h))
//   h += W_o attention(turned(W_q h), the target's keys and values)
//   h += feed-forward(norm(h))
//
// with an embedding, a last norm and a head of its own. A row at position p
// sees the target's positions below p, as many as are there: with none of them
// the draft is a Llama. Only backends of the host run it, the target's own.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_GLIDE_MODEL_H_
#define MODEL_GLIDE_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/cross_attention.h"
#include "model/feature_drafter.h"
#include "model/feature_step.h"
#include "model/glide_config.h"
#include "model/glide_weights.h"
#include "model/language_model.h"

namespace nacre::model {

class GlideModel final : public FeatureDrafter {
 public:
  // `path`: a folder with config.json and the tensors as of OpenDraftTensors,
  // or the file of these beside it. Where there is a nacre_draft.json, its
  // "target_fingerprint" must be the model's. Its KV cache has room for as many
  // tokens as the target's.
  //
  // NOT_FOUND: there is no such file, or no such tensor in it.
  // INVALID_ARGUMENT: it is malformed, or is not this model's draft, with the
  // tensor and both shapes, or the field and its value. UNIMPLEMENTED: a type
  // of tensors, a variant that is not known here, a model that shows no keys or
  // whose backend is no host's. `model` outlives the draft.
  static absl::StatusOr<std::unique_ptr<GlideModel>> Load(
      const std::string& path, const LanguageModel& model);

  absl::Span<const FeatureTap> taps() const override { return config_.taps; }
  int feature_size() const override { return 0; }
  int max_depth() const override { return config_.max_depth; }
  absl::StatusOr<std::unique_ptr<FeatureSequence>> NewSequence(
      int max_length, int num_slots) override;
  // Our own bugs, fatal: those of FeatureStep::Begin, and a target's keys
  // without a table.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const FeatureRows> batch) override;

  // One line: parameters, bytes, the target's layers.
  const std::string& description() const { return description_; }

 private:
  GlideModel(GlideConfig config, GlideWeights weights, const KeptKv& kv,
             kernels::Backend* backend);
  absl::Status Finish(const ModelInfo& info);

  void AddViews(absl::Span<const FeatureRows> batch);
  void RunHead();

  const GlideConfig config_;
  const GlideWeights weights_;
  const KeptKv kv_;
  kernels::Backend* const backend_;
  FeatureStep step_;
  CrossAttention cross_;
  std::string description_;
};

}  // namespace nacre::model

#endif  // MODEL_GLIDE_MODEL_H_
