#include "model/glide_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "model/draft_files.h"

namespace nacre::model {

GlideModel::GlideModel(GlideConfig config, GlideWeights weights,
                       const KeptKv& kv, kernels::Backend* backend)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      kv_(kv),
      backend_(backend),
      step_(config_.llama, backend),
      cross_(config_.cross, backend) {}

absl::StatusOr<std::unique_ptr<GlideModel>> GlideModel::Load(
    const std::string& path, const LanguageModel& model) {
  NACRE_RETURN_IF_ERROR(CheckKeepsFeatures(model, "a GliDe draft"));
  const absl::optional<KeptKv> kv = model.kept_kv();
  if (!kv.has_value()) {
    return absl::UnimplementedError(
        "a GliDe draft of a model that shows no keys and values");
  }
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenDraftTensors(path, ""));
  const std::string folder = DraftFolder(path);
  NACRE_RETURN_IF_ERROR(CheckDraftFingerprint(folder, model.info()));
  NACRE_ASSIGN_OR_RETURN(const Json json,
                         ReadDraftObject(folder, "config.json"));
  auto config = ParseGlideConfig(json, model.info(), *kv);
  if (!config.ok()) {
    return InDraftFile(absl::StrCat(folder, "/config.json"), config.status());
  }
  kernels::Backend* const backend = model.vocabulary_head()->backend;
  auto weights = LoadGlideWeights(*checkpoint, *config, backend);
  if (!weights.ok()) return InDraftFile(path, weights.status());
  std::unique_ptr<GlideModel> glide(
      new GlideModel(*std::move(config), *std::move(weights), *kv, backend));
  NACRE_RETURN_IF_ERROR(glide->Finish(model.info()));
  return glide;
}

absl::Status GlideModel::Finish(const ModelInfo& info) {
  NACRE_RETURN_IF_ERROR(step_.MakeKvCache(info.kv_capacity_tokens));
  description_ = absl::StrFormat(
      "GliDe over keys and values of layers %s of %d, %.1f M parameters, %.1f "
      "MB",
      absl::StrJoin(config_.taps, ", ",
                    [](std::string* out, const FeatureTap& tap) {
                      absl::StrAppend(out, tap.layer);
                    }),
      info.num_layers, weights_.num_parameters * 1e-6,
      weights_.size_bytes * 1e-6);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FeatureSequence>> GlideModel::NewSequence(
    int max_length, int num_slots) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<KvSequence> kv,
                         step_.Reserve(max_length, num_slots));
  cross_.Reserve(max_length + num_slots);
  return std::make_unique<OwnKvSequence>(std::move(kv));
}

void GlideModel::AddViews(absl::Span<const FeatureRows> batch) {
  cross_.Clear();
  for (const FeatureRows& rows : batch) {
    const int next = rows.first_position + rows.sequence->length();
    const int positions = static_cast<int>(NumPositions(rows));
    for (int i = 0; i < positions; ++i) cross_.Add(rows.target, next + i);
    for (const TreeNode& node : rows.nodes) {
      cross_.Add(rows.target, rows.first_position + node.position);
    }
  }
}

void GlideModel::RunHead() {
  Activations& a = *step_.activations();
  const int rows = step_.rows().num_logit_rows();
  step_.runner()->Norm(step_.GatherLogitRows(), rows, weights_.llama.final_norm,
                       a.normed->f32());
  backend_->MatMul(a.normed->f32(), rows, *weights_.llama.head,
                   a.logits->f32());
  step_.BringLogits();
}

absl::StatusOr<absl::Span<const float>> GlideModel::Forward(
    absl::Span<const FeatureRows> batch) {
  AddViews(batch);
  NACRE_RETURN_IF_ERROR(
      step_.Begin(batch, feature_size(), [this] { return cross_.Begin(); }));
  LayerRunner& runner = *step_.runner();
  backend_->Embed(*weights_.llama.embedding, step_.rows().token_ids(),
                  step_.activations()->hidden->f32());
  backend_->RunStep(step_.rows().size(), [&] {
    for (size_t i = 0; i < weights_.cross.size(); ++i) {
      const LayerWeights& layer = weights_.llama.layers[i];
      const int index = static_cast<int>(i);
      runner.RunAttention(layer, index, step_.kv(index));
      cross_.Run(weights_.cross[i],
                 kv_.layers[static_cast<size_t>(config_.taps[i].layer)],
                 config_.llama.hidden_size, step_.activations());
      runner.RunFeedForward(layer, index);
    }
    if (step_.rows().num_logit_rows() > 0) RunHead();
  });
  NACRE_RETURN_IF_ERROR(step_.Wait(batch));
  FeatureStep::End(batch);
  return step_.logits();
}

}  // namespace nacre::model
