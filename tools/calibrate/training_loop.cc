#include "tools/calibrate/training_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::tools {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;

class Adam {
 public:
  Adam(Eigen::Index size, double learning_rate)
      : learning_rate_(learning_rate),
        mean_(Eigen::ArrayXd::Zero(size)),
        square_(Eigen::ArrayXd::Zero(size)) {}

  void Step(const Parameters& gradient, Parameters* parameters) {
    ++steps_;
    const double mean_scale = 1.0 / (1.0 - std::pow(kBeta1, steps_));
    const double square_scale = 1.0 / (1.0 - std::pow(kBeta2, steps_));
    mean_ = kBeta1 * mean_ + (1.0 - kBeta1) * gradient.array();
    square_ = kBeta2 * square_ + (1.0 - kBeta2) * gradient.array().square();
    parameters->array() -= learning_rate_ * mean_ * mean_scale /
                           ((square_ * square_scale).sqrt() + kEpsilon);
  }

 private:
  const double learning_rate_;
  int steps_ = 0;
  Eigen::ArrayXd mean_;
  Eigen::ArrayXd square_;
};

// One pass over the examples in a new order; their mean loss on the way.
double RunEpoch(int batch, std::vector<size_t>* order, std::mt19937_64* random,
                Adam* adam, TrainableNetwork* network) {
  for (size_t i = order->size() - 1; i > 0; --i) {
    std::swap((*order)[i], (*order)[(*random)() % (i + 1)]);
  }
  WeightedLoss epoch;
  Parameters gradient(network->parameters().size());
  for (size_t first = 0; first < order->size();) {
    const size_t last =
        std::min(order->size(), first + static_cast<size_t>(batch));
    gradient.setZero();
    WeightedLoss sum;
    for (size_t i = first; i < last; ++i) {
      sum += network->AddGradient((*order)[i], &gradient);
    }
    epoch += sum;
    gradient /= sum.weight;
    adam->Step(gradient, &network->parameters());
    first = last;
  }
  return epoch.mean();
}

}  // namespace

absl::Status CheckTrainable(size_t accepted, size_t rejected,
                            size_t validation) {
  if (accepted + rejected < kMinTrainingTokens) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there are ", accepted + rejected, " tokens to train on, fewer than ",
        kMinTrainingTokens, ": more prompts or longer answers are needed"));
  }
  if (accepted == 0 || rejected == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "of the tokens to train on ", accepted, " were accepted and ", rejected,
        " rejected: there is nothing to tell apart"));
  }
  if (validation == 0) {
    return absl::FailedPreconditionError(
        "there is no token to validate with: more prompts are needed");
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingCourse> RunTraining(const TrainingOptions& options,
                                           TrainableNetwork* network) {
  NACRE_CHECK(network->num_training() > 0, "nothing to train on");
  Adam adam(network->parameters().size(), options.learning_rate);
  std::mt19937_64 random(options.seed);
  std::vector<size_t> order(network->num_training());
  std::iota(order.begin(), order.end(), size_t{0});
  TrainingCourse course;
  course.validation_loss = std::numeric_limits<double>::infinity();
  Parameters best;
  while (course.epochs < options.max_epochs &&
         course.epochs - course.best_epoch < options.patience) {
    ++course.epochs;
    const double training_loss =
        RunEpoch(options.batch, &order, &random, &adam, network);
    const double validation_loss = network->ValidationLoss();
    if (!std::isfinite(training_loss) || !std::isfinite(validation_loss)) {
      return absl::InternalError(
          absl::StrCat("the loss is not finite in epoch ", course.epochs, ": ",
                       training_loss, ", on validation ", validation_loss));
    }
    if (validation_loss < course.validation_loss) {
      course.validation_loss = validation_loss;
      course.training_loss = training_loss;
      course.best_epoch = course.epochs;
      best = network->parameters();
    }
    if (options.progress &&
        !options.progress(course.epochs, training_loss, validation_loss)) {
      return absl::CancelledError("interrupted");
    }
  }
  network->parameters() = std::move(best);
  return course;
}

}  // namespace nacre::tools
