#include "model/eagle_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "model/draft_files.h"
#include "model/eagle_sequence.h"

namespace nacre::model {
namespace {

EagleSequence* AsEagle(const FeatureRows& rows) {
  return static_cast<EagleSequence*>(rows.sequence);
}

// What the draft takes of the target it must be able to.
absl::Status CheckShared(const EagleConfig& config, const EagleWeights& weights,
                         const ModelInfo& info, const VocabularyHead& target) {
  const bool is_as_wide = config.llama.hidden_size == info.hidden_size;
  if (weights.embedding == nullptr &&
      (!is_as_wide || target.embedding == nullptr)) {
    return absl::InvalidArgumentError(
        "tensor embed_tokens.weight is missing, and the target's embedding is "
        "scaled or of another width");
  }
  if (weights.head == nullptr &&
      (!is_as_wide || config.llama.vocab_size != info.vocab_size)) {
    return absl::InvalidArgumentError(
        "tensor lm_head.weight is missing, and the target's head is of another "
        "width or vocabulary");
  }
  return absl::OkStatus();
}

}  // namespace

EagleModel::EagleModel(EagleConfig config, EagleWeights weights, bool is_third,
                       bool projects, const ModelInfo& info,
                       const VocabularyHead& target)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      is_third_(is_third),
      projects_(projects),
      hidden_(static_cast<size_t>(config_.llama.hidden_size)),
      vocab_size_(static_cast<size_t>(info.vocab_size)),
      target_(target),
      step_(config_.llama, target.backend),
      projector_(config_, weights_, target.backend),
      scratch_(target.backend) {}

absl::StatusOr<std::unique_ptr<EagleModel>> EagleModel::Load(
    const std::string& path, LanguageModel* model) {
  NACRE_RETURN_IF_ERROR(CheckKeepsFeatures(*model, "an EAGLE draft"));
  NACRE_ASSIGN_OR_RETURN(const OpenedEagle opened,
                         OpenEagle(path, model->info()));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<EagleModel> eagle,
                         Create(path, opened, /*projects=*/true, model->info(),
                                *model->vocabulary_head()));
  NACRE_RETURN_IF_ERROR(model->SetTaps(opened.config.taps));
  return eagle;
}

absl::StatusOr<std::unique_ptr<EagleModel>> EagleModel::LoadWithoutTarget(
    const std::string& path, const OpenedEagle& opened, const ModelInfo& info,
    const VocabularyHead& target) {
  return Create(path, opened, /*projects=*/false, info, target);
}

absl::StatusOr<std::unique_ptr<EagleModel>> EagleModel::Create(
    const std::string& path, const OpenedEagle& opened, bool projects,
    const ModelInfo& info, const VocabularyHead& target) {
  auto weights = LoadEagleWeights(
      *opened.checkpoint, opened.layout, opened.config, info.vocab_size,
      target.backend, projects ? EagleParts::kAll : EagleParts::kRest);
  if (!weights.ok()) return InDraftFile(path, weights.status());
  const absl::Status shared =
      CheckShared(opened.config, *weights, info, target);
  if (!shared.ok()) return InDraftFile(path, shared);
  std::unique_ptr<EagleModel> eagle(
      new EagleModel(opened.config, *std::move(weights), opened.layout.is_third,
                     projects, info, target));
  NACRE_RETURN_IF_ERROR(eagle->Finish(info));
  return eagle;
}

absl::Status EagleModel::Finish(const ModelInfo& info) {
  const ModelConfig& llama = config_.llama;
  NACRE_RETURN_IF_ERROR(step_.MakeKvCache(info.kv_capacity_tokens));
  const std::string from =
      is_third_ ? absl::StrCat("what layers ",
                               absl::StrJoin(
                                   config_.taps, ", ",
                                   [](std::string* out, const FeatureTap& tap) {
                                     absl::StrAppend(out, tap.layer);
                                   }),
                               " are given")
                : "the last hidden states";
  description_ = absl::StrFormat(
      "%s over %s, %.1f M parameters, %.1f MB, %d of %d tokens",
      is_third_ ? "EAGLE-3" : "EAGLE-1", from, weights_.num_parameters * 1e-6,
      weights_.size_bytes * 1e-6, llama.vocab_size, info.vocab_size);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FeatureSequence>> EagleModel::NewSequence(
    int max_length, int num_slots) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<KvSequence> kv,
                         step_.Reserve(max_length, num_slots));
  return std::make_unique<EagleSequence>(std::move(kv), hidden_);
}

absl::Status EagleModel::Send(absl::Span<const FeatureRows> batch) {
  Scratch& s = scratch_;
  s.features.clear();
  s.others.clear();
  s.given.clear();
  s.by_row.clear();
  size_t num_others = 0;
  for (const FeatureRows& rows : batch) {
    s.features.insert(s.features.end(), rows.features.begin(),
                      rows.features.end());
    num_others += rows.token_ids.size();
  }
  const bool is_projected = is_third_ && projects_;
  const int beside =
      static_cast<int>(s.features.size() / static_cast<size_t>(feature_size()));
  // Zeros come after all that there may be.
  const int zeros = beside + static_cast<int>(num_others);
  int source = 0;
  for (const FeatureRows& rows : batch) {
    AddGiven(rows, source, beside, zeros);
    source += static_cast<int>(rows.features.size() /
                               static_cast<size_t>(feature_size()));
  }
  const int count = step_.rows().size();
  for (int row = 0; row < count; ++row) {
    s.by_row.insert(s.by_row.end(), {row, count + row});
  }
  NACRE_RETURN_IF_ERROR(
      s.sources.Reserve((static_cast<size_t>(zeros) + 1) * hidden_));
  NACRE_RETURN_IF_ERROR(s.inputs.Reserve(2 * NumValues()));
  NACRE_RETURN_IF_ERROR(s.joined.Reserve(2 * NumValues()));
  NACRE_RETURN_IF_ERROR(s.out.Reserve(
      static_cast<size_t>(step_.rows().num_logit_rows()) * hidden_));
  if (is_projected) {
    NACRE_RETURN_IF_ERROR(projector_.Begin(s.features));
  } else {
    s.sources.Send(s.features);
  }
  s.sources.Send(s.others, static_cast<size_t>(beside) * hidden_);
  s.sources.Send(std::vector<float>(hidden_),
                 static_cast<size_t>(zeros) * hidden_);
  return absl::OkStatus();
}

void EagleModel::AddGiven(const FeatureRows& rows, int first_source,
                          int first_other, int zeros) {
  const EagleSequence& sequence = *AsEagle(rows);
  Scratch& s = scratch_;
  const auto add_other = [&](const float* output) {
    s.given.push_back(first_other +
                      static_cast<int>(s.others.size() / hidden_));
    s.others.insert(s.others.end(), output, output + hidden_);
  };
  const size_t beside =
      rows.features.size() / static_cast<size_t>(feature_size());
  for (size_t i = 0; i < beside; ++i) {
    s.given.push_back(first_source + static_cast<int>(i));
  }
  const size_t without = NumPositions(rows) - beside;
  if (without > 0) {
    add_other(
        sequence.TextOutput(FirstRow(rows) + static_cast<int>(beside) - 1));
    s.given.insert(s.given.end(), without - 1, zeros);
  }
  for (const TreeNode& node : rows.nodes) {
    add_other(node.parent == kNoSlot
                  ? sequence.TextOutput(sequence.length() - 1)
                  : sequence.SlotOutput(node.parent));
  }
}

void EagleModel::Copy(const float* from, int rows, float* to) {
  const int width = static_cast<int>(hidden_);
  target_.backend->TakeColumns(from, rows, width, 0, width, to);
}

void EagleModel::NormInputs() {
  const int rows = step_.rows().size();
  const int hidden = config_.llama.hidden_size;
  const float epsilon = static_cast<float>(config_.llama.norms.epsilon);
  target_.backend->RmsNorm(embedded(), rows, hidden,
                           weights_.embedding_norm->f32(), epsilon, embedded());
  target_.backend->RmsNorm(given(), rows, hidden, weights_.hidden_norm->f32(),
                           epsilon, given());
}

void EagleModel::Join() {
  target_.backend->GatherRows(embedded(), scratch_.by_row,
                              static_cast<int>(hidden_),
                              scratch_.joined.data());
}

void EagleModel::RunLayer() {
  kernels::Backend* const backend = target_.backend;
  const int rows = step_.rows().size();
  const int hidden = config_.llama.hidden_size;
  Activations& a = *step_.activations();
  LayerRunner& runner = *step_.runner();
  float* const residual = a.hidden->f32();
  float* const qkv = a.qkv->f32();
  if (is_third_) {
    if (!config_.norm_before_residual) {
      Copy(given(), rows, residual);
    }
    NormInputs();
    if (config_.norm_before_residual) {
      Copy(given(), rows, residual);
    }
    Join();
    backend->MatMul(scratch_.joined.data(), rows, *weights_.layer.qkv, qkv);
  } else {
    if (config_.norm_inputs) NormInputs();
    Join();
    backend->MatMul(scratch_.joined.data(), rows, *weights_.fc, residual);
    runner.AddBias(weights_.fc_bias, hidden, a.hidden.get());
    backend->MatMul(residual, rows, *weights_.layer.qkv, qkv);
  }
  runner.AddBias(weights_.layer.qkv_bias, weights_.layer.qkv->rows(),
                 a.qkv.get());
  runner.RunFromQkv(weights_.layer, 0, step_.kv(0));
}

void EagleModel::RunHead() {
  kernels::Backend* const backend = target_.backend;
  const int rows = step_.rows().num_logit_rows();
  Activations& a = *step_.activations();
  float* const out = step_.GatherLogitRows();
  const float* read = out;
  if (is_third_) {
    float* const normed = a.normed->f32();
    step_.runner()->Norm(out, rows, weights_.final_norm, normed);
    read = normed;
    if (config_.norm_output) Copy(normed, rows, out);
  }
  scratch_.out.Bring(out, static_cast<size_t>(rows) * hidden_);
  const bool is_own = weights_.head != nullptr;
  backend->MatMul(read, rows, is_own ? *weights_.head : *target_.weights,
                  a.logits->f32());
  if (!is_own && target_.soft_cap > 0) {
    backend->SoftCap(a.logits->f32(),
                     static_cast<size_t>(rows) *
                         static_cast<size_t>(config_.llama.vocab_size),
                     target_.soft_cap);
  }
  step_.BringLogits();
}

absl::Span<const float> EagleModel::MapLogits() {
  const absl::Span<const float> said = step_.logits();
  if (weights_.token_ids.empty()) return said;
  const size_t width = static_cast<size_t>(config_.llama.vocab_size);
  scratch_.logits.assign(said.size() / width * vocab_size_,
                         -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < said.size(); ++i) {
    const size_t id = static_cast<size_t>(weights_.token_ids[i % width]);
    scratch_.logits[i / width * vocab_size_ + id] = said[i];
  }
  return scratch_.logits;
}

void EagleModel::KeepOutputs(absl::Span<const FeatureRows> batch) {
  const float* from =
      scratch_.out
          .Get(0, static_cast<size_t>(step_.rows().num_logit_rows()) * hidden_)
          .data();
  for (const FeatureRows& rows : batch) {
    EagleSequence* const sequence = AsEagle(rows);
    const int end = FirstRow(rows) + static_cast<int>(NumPositions(rows));
    const int nodes = static_cast<int>(rows.nodes.size());
    for (int i = nodes - rows.num_logits; i < nodes; ++i) {
      if (i < 0) {
        sequence->KeepTextOutput(end + i, from);
      } else {
        sequence->KeepSlotOutput(rows.nodes[static_cast<size_t>(i)].slot, from);
      }
      from += hidden_;
    }
  }
  FeatureStep::End(batch);
}

absl::StatusOr<absl::Span<const float>> EagleModel::Forward(
    absl::Span<const FeatureRows> batch) {
  NACRE_RETURN_IF_ERROR(
      step_.Begin(batch, feature_size(), [&] { return Send(batch); }));
  kernels::Backend* const backend = target_.backend;
  backend->RunStep(step_.rows().size(), [&] {
    if (is_third_ && projects_) projector_.Run(scratch_.sources.data());
    backend->GatherRows(scratch_.sources.data(), scratch_.given,
                        static_cast<int>(hidden_), given());
    backend->Embed(weights_.embedding != nullptr ? *weights_.embedding
                                                 : *target_.embedding,
                   step_.rows().token_ids(), embedded());
    RunLayer();
    if (step_.rows().num_logit_rows() > 0) RunHead();
  });
  NACRE_RETURN_IF_ERROR(step_.Wait(batch));
  KeepOutputs(batch);
  return MapLogits();
}

}  // namespace nacre::model
