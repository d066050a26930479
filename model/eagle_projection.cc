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

TapProjector::TapProjector(const EagleConfig& config,
                           const EagleWeights& weights,
                           kernels::Backend* backend)
    : config_(config),
      weights_(weights),
      backend_(backend),
      features_(backend),
      by_tap_(backend) {}

absl::Status TapProjector::Begin(absl::Span<const float> features) {
  rows_ = static_cast<int>(features.size() / static_cast<size_t>(width()));
  NACRE_RETURN_IF_ERROR(features_.Reserve(features.size()));
  if (!weights_.tap_norms.empty()) {
    NACRE_RETURN_IF_ERROR(by_tap_.Reserve(features.size()));
  }
  features_.Send(features);
  return absl::OkStatus();
}

void TapProjector::NormTaps() {
  const int size = config_.tap_size;
  const int taps = static_cast<int>(config_.taps.size());
  if (weights_.tap_norms.empty()) return;
  order_.clear();
  for (int tap = 0; tap < taps; ++tap) {
    for (int row = 0; row < rows_; ++row) order_.push_back(row * taps + tap);
  }
  backend_->GatherRows(features_.data(), order_, size, by_tap_.data());
  for (int tap = 0; tap < taps; ++tap) {
    float* const own =
        by_tap_.data() + static_cast<ptrdiff_t>(tap) * rows_ * size;
    backend_->RmsNorm(own, rows_, size,
                      weights_.tap_norms[static_cast<size_t>(tap)]->f32(),
                      static_cast<float>(config_.llama.norms.epsilon), own);
  }
  order_.clear();
  for (int row = 0; row < rows_; ++row) {
    for (int tap = 0; tap < taps; ++tap) order_.push_back(tap * rows_ + row);
  }
  backend_->GatherRows(by_tap_.data(), order_, size, features_.data());
}

void TapProjector::Run(float* out) {
  if (rows_ == 0) return;
  NormTaps();
  if (weights_.input_norm != nullptr) {
    backend_->RmsNorm(
        features_.data(), rows_, width(), weights_.input_norm->f32(),
        static_cast<float>(config_.llama.norms.epsilon), features_.data());
  }
  backend_->MatMul(features_.data(), rows_, *weights_.fc, out);
}

EagleProjection::EagleProjection(EagleConfig config, EagleWeights weights,
                                 bool is_third, LanguageModel* model)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      is_third_(is_third),
      model_(model),
      backend_(model->vocabulary_head()->backend),
      projector_(config_, weights_, backend_),
      projected_(backend_),
      brought_(backend_) {}

absl::StatusOr<std::unique_ptr<EagleProjection>> EagleProjection::Load(
    const std::string& path, LanguageModel* model) {
  NACRE_RETURN_IF_ERROR(
      CheckKeepsFeatures(*model, "features for an EAGLE draft"));
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
  const size_t tap_size = static_cast<size_t>(config_.tap_size);
  features_.clear();
  for (int i = row; i < row + count; ++i) {
    for (size_t tap = 0; tap < config_.taps.size(); ++tap) {
      const absl::Span<const float> values =
          model_->features(static_cast<int>(tap))
              .subspan(static_cast<size_t>(i) * tap_size, tap_size);
      features_.insert(features_.end(), values.begin(), values.end());
    }
  }
  if (!is_third_) {
    out->insert(out->end(), features_.begin(), features_.end());
    return;
  }
  // What has no room stays zero: a draft's guesses suffer, no token.
  const size_t begin = out->size();
  const size_t values =
      static_cast<size_t>(count) * static_cast<size_t>(size());
  out->resize(begin + values);
  if (!projector_.Begin(features_).ok() || !projected_.Reserve(values).ok() ||
      !brought_.Reserve(values).ok()) {
    return;
  }
  backend_->RunStep(count, [&] {
    projector_.Run(projected_.data());
    brought_.Bring(projected_.data(), values);
  });
  if (!backend_->Synchronize().ok()) return;
  const absl::Span<const float> brought = brought_.Get(0, values);
  std::copy(brought.begin(), brought.end(),
            out->begin() + static_cast<ptrdiff_t>(begin));
}

}  // namespace nacre::model
