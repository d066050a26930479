#include "tools/calibrate/trainer.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "tools/calibrate/disco_network.h"
#include "tools/calibrate/head_network.h"

namespace nacre::tools {
namespace {

// A network and the examples that it is trained on and judged by.
template <typename Network, typename Example>
class Training final : public TrainableNetwork {
 public:
  Training(Network network, absl::Span<const Example> training,
           absl::Span<const Example> validation)
      : network_(std::move(network)),
        training_(training),
        validation_(validation) {}

  Parameters& parameters() override { return network_.parameters(); }
  size_t num_training() const override { return training_.size(); }
  WeightedLoss AddGradient(size_t example, Parameters* gradient) override {
    return network_.AddGradient(training_[example], gradient);
  }
  double ValidationLoss() override { return MeanLoss(network_, validation_); }
  auto Weights() const { return network_.Weights(); }

 private:
  Network network_;
  const absl::Span<const Example> training_;
  const absl::Span<const Example> validation_;
};

// `make_network` is called once it is known that there is something to train
// on.
template <typename Example, typename MakeNetwork>
auto Train(absl::Span<const Example> examples,
           absl::Span<const Example> validation, const TrainingOptions& options,
           const MakeNetwork& make_network)
    -> absl::StatusOr<Trained<decltype(make_network().Weights())>> {
  const auto accepted = static_cast<size_t>(std::count_if(
      examples.begin(), examples.end(),
      [](const Example& example) { return example.accepted > 0.5; }));
  NACRE_RETURN_IF_ERROR(
      CheckTrainable(accepted, examples.size() - accepted, validation.size()));
  Training<decltype(make_network()), Example> training(make_network(), examples,
                                                       validation);
  Trained<decltype(make_network().Weights())> trained;
  NACRE_ASSIGN_OR_RETURN(trained.course, RunTraining(options, &training));
  trained.weights = training.Weights();
  NACRE_RETURN_IF_ERROR(Validate(trained.weights));
  return trained;
}

int SizeOf(absl::Span<const float> state) {
  return static_cast<int>(state.size());
}

}  // namespace

absl::StatusOr<Trained<speculation::DiscoWeights>> TrainDisco(
    absl::Span<const Example> training, absl::Span<const Example> validation,
    const TrainingOptions& options) {
  return Train(training, validation, options, [&] {
    return DiscoNetwork(options.width, ScaleOf(training), options.seed);
  });
}

absl::StatusOr<Trained<speculation::AcceptanceHead>> TrainHead(
    absl::Span<const StateExample> training,
    absl::Span<const StateExample> validation, const TrainingOptions& options) {
  return Train(training, validation, options, [&] {
    return HeadNetwork(SizeOf(training[0].state), kHeadLayers,
                       StateScaleOf(training), options.seed);
  });
}

absl::StatusOr<Trained<speculation::CaliTsModel>> TrainCaliTs(
    absl::Span<const CaliTsExample> training,
    absl::Span<const CaliTsExample> validation,
    const TrainingOptions& options) {
  return Train(training, validation, options, [&] {
    return CaliTsNetwork(SizeOf(training[0].target_state),
                         SizeOf(training[0].draft_state), ScaleOf(training),
                         options.seed);
  });
}

}  // namespace nacre::tools
