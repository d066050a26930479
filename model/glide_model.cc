#include "model/glide_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "model/draft_files.h"

namespace nacre::model {

void GlideModel::Views::Clear() {
  runs.clear();
  contexts.clear();
  cos.clear();
  sin.clear();
}

GlideModel::GlideModel(GlideConfig config, GlideWeights weights,
                       const KeptKv& kv, kernels::Backend* backend)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      kv_(kv),
      backend_(backend),
      step_(config_.llama, backend),
      cross_rope_(config_.cross) {}

absl::StatusOr<std::unique_ptr<GlideModel>> GlideModel::Load(
    const std::string& path, const LanguageModel& model) {
  NACRE_RETURN_IF_ERROR(CheckHostTarget(model, "a GliDe draft"));
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
  cross_rope_.Reserve(max_length + num_slots);
  return std::make_unique<OwnKvSequence>(std::move(kv));
}

void GlideModel::AddView(const TargetKv& target, int position) {
  cross_rope_.Extend(position);
  const absl::Span<const float> cos = cross_rope_.Cos(position);
  const absl::Span<const float> sin = cross_rope_.Sin(position);
  views_.cos.insert(views_.cos.end(), cos.begin(), cos.end());
  views_.sin.insert(views_.sin.end(), sin.begin(), sin.end());
  // The target's own row of this position is computed later, or never.
  const int seen = std::min(position, target.length);
  const size_t row = views_.contexts.size();
  views_.contexts.push_back({target.table, seen - 1});
  if (seen == 0) return;
  NACRE_CHECK(target.table != nullptr, "a target's keys without a table");
  std::vector<Views::Run>& runs = views_.runs;
  if (runs.empty() || runs.back().first + runs.back().count != row) {
    runs.push_back({row, 0});
  }
  ++runs.back().count;
}

void GlideModel::AddViews(absl::Span<const FeatureRows> batch) {
  views_.Clear();
  for (const FeatureRows& rows : batch) {
    const int next = rows.first_position + rows.sequence->length();
    const int positions = static_cast<int>(NumPositions(rows));
    for (int i = 0; i < positions; ++i) AddView(rows.target, next + i);
    for (const TreeNode& node : rows.nodes) {
      AddView(rows.target, rows.first_position + node.position);
    }
  }
}

void GlideModel::RunCross(size_t layer) {
  Activations& a = *step_.activations();
  const int rows = step_.rows().size();
  const int heads = config_.cross.num_attention_heads;
  const int head_dim = config_.cross.head_dim;
  const int size = config_.cross.q_size();
  const size_t width = static_cast<size_t>(size);
  const GlideWeights::Cross& weights = weights_.cross[layer];
  queries_.resize(static_cast<size_t>(rows) * width);
  backend_->MatMul(a.attended->f32(), rows, *weights.q, queries_.data());
  backend_->Rope(queries_.data(), rows, size, heads, head_dim,
                 views_.cos.data(), views_.sin.data());
  // What sees nothing finds nothing.
  found_.assign(queries_.size(), 0);
  const kernels::AttentionRule rule(
      static_cast<float>(1.0 / std::sqrt(double{1} * head_dim)));
  const kernels::KvLayer& kv =
      kv_.layers[static_cast<size_t>(config_.taps[layer].layer)];
  for (const Views::Run& run : views_.runs) {
    backend_->Attention(
        queries_.data() + run.first * width, size, heads, rule,
        absl::MakeConstSpan(views_.contexts).subspan(run.first, run.count), kv,
        found_.data() + run.first * width);
  }
  backend_->MatMul(found_.data(), rows, *weights.o, a.normed->f32());
  backend_->AddInPlace(a.attended->f32(), a.normed->f32(),
                       static_cast<size_t>(rows) *
                           static_cast<size_t>(config_.llama.hidden_size));
}

void GlideModel::RunHead() {
  Activations& a = *step_.activations();
  const int rows = step_.rows().num_logit_rows();
  step_.GatherLogitRows(&out_);
  step_.runner()->Norm(out_.data(), rows, weights_.llama.final_norm,
                       a.normed->f32());
  backend_->MatMul(a.normed->f32(), rows, *weights_.llama.head,
                   a.logits->f32());
  logits_.assign(
      a.logits->f32(),
      a.logits->f32() + static_cast<size_t>(rows) *
                            static_cast<size_t>(config_.llama.vocab_size));
}

absl::StatusOr<absl::Span<const float>> GlideModel::Forward(
    absl::Span<const FeatureRows> batch) {
  NACRE_RETURN_IF_ERROR(step_.Begin(batch, feature_size()));
  AddViews(batch);
  logits_.clear();
  LayerRunner& runner = *step_.runner();
  backend_->RunStep(step_.rows().size(), [&] {
    backend_->Embed(*weights_.llama.embedding, step_.rows().token_ids(),
                    step_.activations()->hidden->f32());
    for (size_t i = 0; i < weights_.cross.size(); ++i) {
      const LayerWeights& layer = weights_.llama.layers[i];
      const int index = static_cast<int>(i);
      runner.RunAttention(layer, index, step_.kv(index));
      RunCross(i);
      runner.RunFeedForward(layer, index);
    }
    if (step_.rows().num_logit_rows() > 0) RunHead();
  });
  FeatureStep::End(batch);
  return logits_;
}

}  // namespace nacre::model
