#include "tools/calibrate/disco_network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/check.h"

namespace nacre::tools {
namespace {

using speculation::kDiscoInputs;

// Below one of them an input counts as constant. Dividing by less would blow up
// what is rounding: of the input or, beside a mean, of the bias that both are
// folded into (float32: 24 bits).
constexpr double kSmallestSpread = 1e-6;
constexpr double kSmallestSpreadOfMean = 1e-4;

}  // namespace

InputScale ScaleOf(absl::Span<const Example> examples) {
  NACRE_CHECK(!examples.empty(), "the scale of no example");
  InputScale scale;
  const double count = static_cast<double>(examples.size());
  for (size_t i = 0; i < kDiscoInputs; ++i) {
    double sum = 0.0;
    for (const Example& example : examples) sum += example.inputs[i];
    const double mean = sum / count;
    double squares = 0.0;
    for (const Example& example : examples) {
      squares += (example.inputs[i] - mean) * (example.inputs[i] - mean);
    }
    const double spread = std::sqrt(squares / count);
    scale.mean[i] = mean;
    const double smallest =
        std::max(kSmallestSpread, kSmallestSpreadOfMean * std::abs(mean));
    scale.spread[i] = spread > smallest ? spread : 1.0;
  }
  return scale;
}

DiscoNetwork::DiscoNetwork(int width, InputScale scale, uint64_t seed)
    : width_(width), scale_(scale) {
  NACRE_CHECK(width >= 1, "a network without hidden units");
  parameters_.setZero(output_bias() + 1);
  std::mt19937_64 random(seed);
  FillNormal(2.0 / kDiscoInputs, random, parameters_.head(hidden_bias()));
  FillNormal(2.0 / width, random, parameters_.segment(output_weight(), width_));
}

double DiscoNetwork::Forward(const Example& example) {
  for (size_t i = 0; i < kDiscoInputs; ++i) {
    inputs_[static_cast<Eigen::Index>(i)] =
        (example.inputs[i] - scale_.mean[i]) / scale_.spread[i];
  }
  const Eigen::Map<const HiddenWeight> weight(parameters_.data(), width_,
                                              kInputs);
  hidden_ = parameters_.segment(hidden_bias(), width_);
  hidden_.noalias() += weight * inputs_;
  return parameters_[output_bias()] +
         parameters_.segment(output_weight(), width_)
             .dot(hidden_.cwiseMax(0.0));
}

WeightedLoss DiscoNetwork::Loss(const Example& example) {
  return {CrossEntropy(Forward(example), example.accepted), 1.0};
}

WeightedLoss DiscoNetwork::AddGradient(const Example& example,
                                       Parameters* gradient) {
  NACRE_CHECK(gradient->size() == parameters_.size(),
              "a gradient of another size");
  const double sum = Forward(example);
  // Of the sum before the sigmoid.
  const double error = Sigmoid(sum) - (example.accepted ? 1.0 : 0.0);
  (*gradient)[output_bias()] += error;
  gradient->segment(output_weight(), width_) += error * hidden_.cwiseMax(0.0);
  // In place: a unit that the ReLU turned off has no error.
  hidden_ =
      (hidden_.array() > 0.0)
          .select(error * parameters_.segment(output_weight(), width_), 0.0);
  gradient->segment(hidden_bias(), width_) += hidden_;
  Eigen::Map<HiddenWeight> weight(gradient->data(), width_, kInputs);
  weight.noalias() += hidden_ * inputs_.transpose();
  return {CrossEntropy(sum, example.accepted), 1.0};
}

speculation::DiscoWeights DiscoNetwork::Weights() const {
  // w (x - mean) / spread + b = (w / spread) x + (b - w mean / spread)
  using Inputs = Eigen::Map<const Eigen::Matrix<double, kInputs, 1>>;
  const Eigen::Map<const HiddenWeight> scaled(parameters_.data(), width_,
                                              kInputs);
  const HiddenWeight weight = scaled.array().rowwise() /
                              Inputs(scale_.spread.data()).transpose().array();
  const Eigen::VectorXd bias = parameters_.segment(hidden_bias(), width_) -
                               weight * Inputs(scale_.mean.data());
  speculation::DiscoWeights weights;
  weights.hidden_weight = Floats(weight.reshaped<Eigen::RowMajor>());
  weights.hidden_bias = Floats(bias);
  weights.output_weight = Floats(parameters_.segment(output_weight(), width_));
  weights.output_bias = static_cast<float>(parameters_[output_bias()]);
  return weights;
}

}  // namespace nacre::tools
