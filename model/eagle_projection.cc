#include "model/eagle_projection.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "model/draft_files.h"
#include "model/eagle_folder.h"
#include "model/feature_step.h"
#include "model/first_forward.h"

namespace nacre::model {
namespace {

// Each tap of all rows by its own norm.
void NormTaps(const EagleConfig& config, const EagleWeights& weights,
              kernels::Backend* backend, std::vector<float>* features) {
  const size_t size = static_cast<size_t>(config.tap_size);
  const size_t width = config.taps.size() * size;
  const int count = static_cast<int>(features->size() / width);
  const float epsilon = static_cast<float>(config.llama.norms.epsilon);
  std::vector<float> own;
  for (size_t tap = 0; tap < weights.tap_norms.size(); ++tap) {
    own.clear();
    for (size_t at = tap * size; at < features->size(); at += width) {
      own.insert(own.end(), features->begin() + at,
                 features->begin() + at + size);
    }
    backend->RmsNorm(own.data(), count, config.tap_size,
                     weights.tap_norms[tap]->f32(), epsilon, own.data());
    for (int i = 0; i < count; ++i) {
      std::copy_n(own.begin() + i * size, size,
                  features->begin() + i * width + tap * size);
    }
  }
}

}  // namespace

void ProjectTaps(const EagleConfig& config, const EagleWeights& weights,
                 kernels::Backend* backend, std::vector<float>* features,
                 std::vector<float>* out) {
  const int width = static_cast<int>(config.taps.size()) * config.tap_size;
  const int count =
      static_cast<int>(features->size() / static_cast<size_t>(width));
  NormTaps(config, weights, backend, features);
  if (weights.input_norm != nullptr) {
    backend->RmsNorm(features->data(), count, width, weights.input_norm->f32(),
                     static_cast<float>(config.llama.norms.epsilon),
                     features->data());
  }
  out->resize(static_cast<size_t>(count) *
              static_cast<size_t>(config.llama.hidden_size));
  backend->MatMul(features->data(), count, *weights.fc, out->data());
}

EagleProjection::EagleProjection(EagleConfig config, EagleWeights weights,
                                 bool is_third, LanguageModel* model)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      is_third_(is_third),
      model_(model),
      backend_(model->vocabulary_head()->backend) {}

absl::StatusOr<std::unique_ptr<EagleProjection>> EagleProjection::Load(
    const std::string& path, LanguageModel* model) {
  NACRE_RETURN_IF_ERROR(CheckHostTarget(*model, "features for an EAGLE draft"));
  NACRE_ASSIGN_OR_RETURN(OpenedEagle opened, OpenEagle(path, model->info()));
  auto weights = LoadEagleWeights(*opened.checkpoint, opened.layout,
                                  opened.config, model->info().vocab_size,
                                  model->vocabulary_head()->backend,
                                  EagleParts::kProjection);
  if (!weights.ok()) return InDraftFile(path, weights.status());
  NACRE_RETURN_IF_ERROR(model->SetTaps(opened.config.taps));
  std::unique_ptr<EagleProjection> projection(
      new EagleProjection(std::move(opened.config), *std::move(weights),
                          opened.layout.is_third, model));
  NACRE_RETURN_IF_ERROR(
      InDraftFile(path, ProbeSource(model, projection.get())));
  NACRE_ASSIGN_OR_RETURN(projection->fingerprint_,
                         EagleFingerprint(path, *opened.checkpoint));
  projection->description_ = absl::StrFormat(
      "%d numbers a position of %d taps, for the draft %s", projection->size(),
      projection->taps().size(), projection->fingerprint_.substr(0, 16));
  return projection;
}

void EagleProjection::Project(int row, int count, std::vector<float>* out) {
  if (count == 0) return;
  const size_t size = static_cast<size_t>(config_.tap_size);
  features_.clear();
  for (int i = row; i < row + count; ++i) {
    for (size_t tap = 0; tap < config_.taps.size(); ++tap) {
      const absl::Span<const float> values =
          model_->features(static_cast<int>(tap))
              .subspan(static_cast<size_t>(i) * size, size);
      features_.insert(features_.end(), values.begin(), values.end());
    }
  }
  if (!is_third_) {
    out->insert(out->end(), features_.begin(), features_.end());
    return;
  }
  backend_->RunStep(count, [&] {
    ProjectTaps(config_, weights_, backend_, &features_, &projected_);
  });
  out->insert(out->end(), projected_.begin(), projected_.end());
}

}  // namespace nacre::model
