#include "tools/calibrate/trainer.h"

#include <algorithm>
#include <vector>

#include "common/status_macros.h"
#include "tools/calibrate/head_network.h"
#include "tools/calibrate/network.h"

namespace nacre::tools {
namespace {

class DiscoTraining final : public TrainableNetwork {
 public:
  DiscoTraining(absl::Span<const Example> training,
                absl::Span<const Example> validation,
                const TrainingOptions& options)
      : training_(training),
        validation_(validation),
        network_(options.width, ScaleOf(training), options.seed) {}

  std::vector<double>& parameters() override { return network_.parameters(); }
  size_t num_training() const override { return training_.size(); }
  WeightedLoss AddGradient(size_t example,
                           std::vector<double>* gradient) override {
    return {network_.AddGradient(training_[example], gradient), 1.0};
  }
  double ValidationLoss() override { return network_.MeanLoss(validation_); }
  speculation::DiscoWeights Weights() const { return network_.Weights(); }

 private:
  const absl::Span<const Example> training_;
  const absl::Span<const Example> validation_;
  Network network_;
};

class HeadTraining final : public TrainableNetwork {
 public:
  HeadTraining(absl::Span<const StateExample> training,
               absl::Span<const StateExample> validation,
               const TrainingOptions& options)
      : training_(training),
        validation_(validation),
        network_(static_cast<int>(training[0].state.size()), kHeadLayers,
                 StateScaleOf(training), options.seed) {}

  std::vector<double>& parameters() override { return network_.parameters(); }
  size_t num_training() const override { return training_.size(); }
  WeightedLoss AddGradient(size_t example,
                           std::vector<double>* gradient) override {
    return network_.AddGradient(training_[example], gradient);
  }
  double ValidationLoss() override { return network_.MeanLoss(validation_); }
  speculation::AcceptanceHead Weights() const { return network_.Weights(); }

 private:
  const absl::Span<const StateExample> training_;
  const absl::Span<const StateExample> validation_;
  HeadNetwork network_;
};

class CaliTsTraining final : public TrainableNetwork {
 public:
  CaliTsTraining(absl::Span<const CaliTsExample> training,
                 absl::Span<const CaliTsExample> validation,
                 const TrainingOptions& options)
      : training_(training),
        validation_(validation),
        network_(static_cast<int>(training[0].target_state.size()),
                 static_cast<int>(training[0].draft_state.size()),
                 ScaleOf(training), options.seed) {}

  std::vector<double>& parameters() override { return network_.parameters(); }
  size_t num_training() const override { return training_.size(); }
  WeightedLoss AddGradient(size_t example,
                           std::vector<double>* gradient) override {
    return {network_.AddGradient(training_[example], gradient), 1.0};
  }
  double ValidationLoss() override { return network_.MeanLoss(validation_); }
  speculation::CaliTsModel Weights() const { return network_.Weights(); }

 private:
  const absl::Span<const CaliTsExample> training_;
  const absl::Span<const CaliTsExample> validation_;
  CaliTsNetwork network_;
};

template <typename Weights, typename Training, typename Examples>
absl::StatusOr<Trained<Weights>> Train(Examples training, Examples validation,
                                       const TrainingOptions& options) {
  const auto accepted = static_cast<size_t>(std::count_if(
      training.begin(), training.end(),
      [](const auto& example) { return example.accepted > 0.5; }));
  NACRE_RETURN_IF_ERROR(
      CheckTrainable(accepted, training.size() - accepted, validation.size()));
  Training network(training, validation, options);
  Trained<Weights> trained;
  NACRE_ASSIGN_OR_RETURN(trained.course, RunTraining(options, &network));
  trained.weights = network.Weights();
  NACRE_RETURN_IF_ERROR(Validate(trained.weights));
  return trained;
}

}  // namespace

absl::StatusOr<Trained<speculation::DiscoWeights>> TrainDisco(
    absl::Span<const Example> training, absl::Span<const Example> validation,
    const TrainingOptions& options) {
  return Train<speculation::DiscoWeights, DiscoTraining>(training, validation,
                                                         options);
}

absl::StatusOr<Trained<speculation::AcceptanceHead>> TrainHead(
    absl::Span<const StateExample> training,
    absl::Span<const StateExample> validation, const TrainingOptions& options) {
  return Train<speculation::AcceptanceHead, HeadTraining>(training, validation,
                                                          options);
}

absl::StatusOr<Trained<speculation::CaliTsModel>> TrainCaliTs(
    absl::Span<const CaliTsExample> training,
    absl::Span<const CaliTsExample> validation,
    const TrainingOptions& options) {
  return Train<speculation::CaliTsModel, CaliTsTraining>(training, validation,
                                                         options);
}

}  // namespace nacre::tools
