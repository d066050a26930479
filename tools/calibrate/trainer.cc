#include "tools/calibrate/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tools/calibrate/network.h"

namespace nacre::tools {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;

class Adam {
 public:
  Adam(size_t size, double learning_rate)
      : learning_rate_(learning_rate), mean_(size), square_(size) {}

  void Step(const std::vector<double>& gradient,
            std::vector<double>* parameters) {
    ++steps_;
    const double mean_scale = 1.0 / (1.0 - std::pow(kBeta1, steps_));
    const double square_scale = 1.0 / (1.0 - std::pow(kBeta2, steps_));
    for (size_t i = 0; i < gradient.size(); ++i) {
      mean_[i] = kBeta1 * mean_[i] + (1.0 - kBeta1) * gradient[i];
      square_[i] =
          kBeta2 * square_[i] + (1.0 - kBeta2) * gradient[i] * gradient[i];
      (*parameters)[i] -= learning_rate_ * mean_[i] * mean_scale /
                          (std::sqrt(square_[i] * square_scale) + kEpsilon);
    }
  }

 private:
  const double learning_rate_;
  int steps_ = 0;
  std::vector<double> mean_;
  std::vector<double> square_;
};

absl::Status CheckExamples(absl::Span<const Example> training,
                           absl::Span<const Example> validation) {
  const auto accepted =
      std::count_if(training.begin(), training.end(),
                    [](const Example& example) { return example.accepted; });
  const auto rejected = static_cast<int64_t>(training.size()) - accepted;
  if (accepted == 0 || rejected == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "of the tokens to train on ", accepted, " were accepted and ", rejected,
        " rejected: there is nothing to tell apart"));
  }
  if (validation.empty()) {
    return absl::FailedPreconditionError(
        "there is no token to validate with: more prompts are needed");
  }
  return absl::OkStatus();
}

// One pass over the examples in a new order; their mean loss on the way.
double RunEpoch(absl::Span<const Example> training, int batch,
                std::vector<size_t>* order, std::mt19937_64* random, Adam* adam,
                Network* network) {
  for (size_t i = order->size() - 1; i > 0; --i) {
    std::swap((*order)[i], (*order)[(*random)() % (i + 1)]);
  }
  double loss = 0.0;
  std::vector<double> gradient(network->parameters().size());
  for (size_t first = 0; first < order->size();) {
    const size_t last =
        std::min(order->size(), first + static_cast<size_t>(batch));
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (size_t i = first; i < last; ++i) {
      loss += network->AddGradient(training[(*order)[i]], &gradient);
    }
    for (double& value : gradient) value /= static_cast<double>(last - first);
    adam->Step(gradient, &network->parameters());
    first = last;
  }
  return loss / static_cast<double>(order->size());
}

}  // namespace

absl::StatusOr<TrainedNetwork> TrainNetwork(
    absl::Span<const Example> training, absl::Span<const Example> validation,
    const TrainingOptions& options) {
  NACRE_RETURN_IF_ERROR(CheckExamples(training, validation));
  Network network(options.width, ScaleOf(training), options.seed);
  Adam adam(network.parameters().size(), options.learning_rate);
  std::mt19937_64 random(options.seed);
  std::vector<size_t> order(training.size());
  std::iota(order.begin(), order.end(), size_t{0});
  TrainedNetwork trained;
  trained.validation_loss = std::numeric_limits<double>::infinity();
  while (trained.epochs < options.max_epochs &&
         trained.epochs - trained.best_epoch < options.patience) {
    ++trained.epochs;
    const double training_loss =
        RunEpoch(training, options.batch, &order, &random, &adam, &network);
    const double validation_loss = network.MeanLoss(validation);
    if (!std::isfinite(training_loss) || !std::isfinite(validation_loss)) {
      return absl::InternalError(
          absl::StrCat("the loss is not finite in epoch ", trained.epochs, ": ",
                       training_loss, ", on validation ", validation_loss));
    }
    if (validation_loss < trained.validation_loss) {
      trained.validation_loss = validation_loss;
      trained.training_loss = training_loss;
      trained.best_epoch = trained.epochs;
      trained.weights = network.Weights();
    }
    if (options.progress &&
        !options.progress(trained.epochs, training_loss, validation_loss)) {
      return absl::CancelledError("interrupted");
    }
  }
  NACRE_RETURN_IF_ERROR(Validate(trained.weights));
  return trained;
}

}  // namespace nacre::tools
