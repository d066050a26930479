#include "tools/calibrate/network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/check.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {
namespace {

using speculation::kDiscoInputs;

// Below one of them an input counts as constant: dividing by less would blow up
// what is rounding, of the input or, beside a mean, of the bias that both are
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

Network::Network(int width, InputScale scale, uint64_t seed)
    : width_(static_cast<size_t>(width)), scale_(scale) {
  NACRE_CHECK(width >= 1, "a network without hidden units");
  parameters_.assign(output_bias() + 1, 0.0);
  hidden_.resize(width_);
  std::mt19937_64 random(seed);
  const double hidden_spread = std::sqrt(2.0 / kDiscoInputs);
  for (size_t i = 0; i < hidden_bias(); ++i) {
    parameters_[i] = hidden_spread * Normal(random);
  }
  const double output_spread = std::sqrt(2.0 / static_cast<double>(width_));
  for (size_t i = output_weight(); i < output_bias(); ++i) {
    parameters_[i] = output_spread * Normal(random);
  }
}

Network::Inputs Network::Scaled(const Example& example) const {
  Inputs inputs;
  for (size_t i = 0; i < kDiscoInputs; ++i) {
    inputs[i] = (example.inputs[i] - scale_.mean[i]) / scale_.spread[i];
  }
  return inputs;
}

double Network::HiddenSum(const Inputs& inputs, size_t unit) const {
  const double* weights = &parameters_[unit * kDiscoInputs];
  double sum = parameters_[hidden_bias() + unit];
  for (size_t i = 0; i < kDiscoInputs; ++i) sum += weights[i] * inputs[i];
  return sum;
}

double Network::Loss(const Example& example) const {
  const Inputs inputs = Scaled(example);
  double sum = parameters_[output_bias()];
  for (size_t unit = 0; unit < width_; ++unit) {
    sum += parameters_[output_weight() + unit] *
           std::max(HiddenSum(inputs, unit), 0.0);
  }
  return CrossEntropy(sum, example.accepted);
}

double Network::MeanLoss(absl::Span<const Example> examples) const {
  NACRE_CHECK(!examples.empty(), "the loss of no example");
  double sum = 0.0;
  for (const Example& example : examples) sum += Loss(example);
  return sum / static_cast<double>(examples.size());
}

double Network::AddGradient(const Example& example,
                            std::vector<double>* gradient) {
  NACRE_CHECK(gradient->size() == parameters_.size(),
              "a gradient of another size");
  const Inputs inputs = Scaled(example);
  double sum = parameters_[output_bias()];
  for (size_t unit = 0; unit < width_; ++unit) {
    hidden_[unit] = HiddenSum(inputs, unit);
    sum += parameters_[output_weight() + unit] * std::max(hidden_[unit], 0.0);
  }
  // Of the sum before the sigmoid.
  const double error = Sigmoid(sum) - (example.accepted ? 1.0 : 0.0);
  (*gradient)[output_bias()] += error;
  for (size_t unit = 0; unit < width_; ++unit) {
    if (hidden_[unit] <= 0.0) continue;  // ReLU: off
    (*gradient)[output_weight() + unit] += error * hidden_[unit];
    const double hidden_error = error * parameters_[output_weight() + unit];
    (*gradient)[hidden_bias() + unit] += hidden_error;
    double* weights = &(*gradient)[unit * kDiscoInputs];
    for (size_t i = 0; i < kDiscoInputs; ++i) {
      weights[i] += hidden_error * inputs[i];
    }
  }
  return CrossEntropy(sum, example.accepted);
}

speculation::DiscoWeights Network::Weights() const {
  // w (x - mean) / spread + b = (w / spread) x + (b - w mean / spread)
  speculation::DiscoWeights weights;
  for (size_t unit = 0; unit < width_; ++unit) {
    double bias = parameters_[hidden_bias() + unit];
    for (size_t i = 0; i < kDiscoInputs; ++i) {
      const double weight =
          parameters_[unit * kDiscoInputs + i] / scale_.spread[i];
      weights.hidden_weight.push_back(static_cast<float>(weight));
      bias -= weight * scale_.mean[i];
    }
    weights.hidden_bias.push_back(static_cast<float>(bias));
    weights.output_weight.push_back(
        static_cast<float>(parameters_[output_weight() + unit]));
  }
  weights.output_bias = static_cast<float>(parameters_[output_bias()]);
  return weights;
}

}  // namespace nacre::tools
