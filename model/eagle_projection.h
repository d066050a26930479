// What EAGLE-3 does with the target's features before its layer: perhaps norms,
// then fc, which makes one row of the draft's width of all taps. It is a row's
// own, so it can be done where the target is, for a draft that runs elsewhere.
// EAGLE-1 reads the features as they are.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_EAGLE_PROJECTION_H_
#define MODEL_EAGLE_PROJECTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/eagle_config.h"
#include "model/eagle_weights.h"
#include "model/feature_source.h"
#include "model/feature_tap.h"
#include "model/language_model.h"
#include "model/step_values.h"

namespace nacre::model {

// What EAGLE-3's weights make of a target's features.
class TapProjector {
 public:
  // All outlive it.
  TapProjector(const EagleConfig& config, const EagleWeights& weights,
               kernels::Backend* backend);

  // Before a step: takes features of the host [rows, all taps].
  // RESOURCE_EXHAUSTED.
  absl::Status Begin(absl::Span<const float> features);
  // In a step: out [rows, hidden_size of the draft], of the backend.
  void Run(float* out);
  // Of Begin.
  int rows() const { return rows_; }

 private:
  // Each tap of all rows by its own norm.
  void NormTaps();
  int width() const {  // of a row
    return static_cast<int>(config_.taps.size()) * config_.tap_size;
  }

  const EagleConfig& config_;
  const EagleWeights& weights_;
  kernels::Backend* const backend_;
  int rows_ = 0;
  StepValues features_;
  StepValues by_tap_;  // all rows of a tap one after the other
  std::vector<int32_t> order_;
};

class EagleProjection final : public FeatureSource {
 public:
  // As EagleModel::Load, of what the target needs of the draft.
  static absl::StatusOr<std::unique_ptr<EagleProjection>> Load(
      const std::string& path, LanguageModel* model);

  // The taps that the model keeps for it, in this order.
  absl::Span<const FeatureTap> taps() const { return config_.taps; }
  int size() const override { return config_.llama.hidden_size; }
  const std::string& draft_fingerprint() const override { return fingerprint_; }
  void Project(int row, int count, std::vector<float>* out) override;

  // One line: numbers, taps, draft.
  const std::string& description() const { return description_; }

 private:
  EagleProjection(EagleConfig config, EagleWeights weights, bool is_third,
                  LanguageModel* model);

  const EagleConfig config_;
  const EagleWeights weights_;
  const bool is_third_;
  LanguageModel* const model_;
  kernels::Backend* const backend_;
  std::string fingerprint_;
  std::string description_;
  TapProjector projector_;
  // Of the call being made.
  std::vector<float> features_;
  StepValues projected_;
  BroughtValues brought_;
};

}  // namespace nacre::model

#endif  // MODEL_EAGLE_PROJECTION_H_
