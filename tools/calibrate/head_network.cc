#include "tools/calibrate/head_network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/check.h"

namespace nacre::tools {
namespace {

// x * sigmoid(x), and its derivative.
double Silu(double x) { return x * Sigmoid(x); }
double SiluSlope(double x) {
  const double s = Sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

}  // namespace

WeightedLoss HeadLoss(double logit, double accepted) {
  const double rejected = kRejectWeight * (1.0 - accepted);
  return {accepted * CrossEntropy(logit, true) +
              rejected * CrossEntropy(logit, false),
          accepted + rejected};
}

double StateScaleOf(absl::Span<const StateExample> examples) {
  NACRE_CHECK(!examples.empty(), "the scale of no state");
  RootMeanSquare scale;
  for (const StateExample& example : examples) scale.Add(example.state);
  return scale.value();
}

HeadNetwork::HeadNetwork(int size, int num_layers, double scale, uint64_t seed)
    : size_(size),
      num_layers_(num_layers),
      scale_(scale),
      inputs_(size, num_layers + 1),
      sums_(size, num_layers),
      input_error_(size),
      sum_error_(size) {
  NACRE_CHECK(size >= 1 && num_layers >= 1 && scale > 0.0,
              "a head without layers, or of states that are 0");
  parameters_.setZero(output_bias() + 2);
  std::mt19937_64 random(seed);
  FillNormal(1.0 / size, random, parameters_.segment(output(), 2 * size_));
}

double HeadNetwork::Forward(const StateExample& example) {
  NACRE_CHECK(example.state.size() == static_cast<size_t>(size_),
              "a state of another model");
  std::copy(example.state.begin(), example.state.end(), inputs_.data());
  const double factor = 1.0 / scale_;
  const Eigen::Map<const RowMatrix> block(parameters_.data(), size_, size_);
  for (Eigen::Index layer = 0; layer < num_layers_; ++layer) {
    auto sums = sums_.col(layer);
    sums = parameters_.segment(block_bias(), size_);
    sums.noalias() += factor * (block * inputs_.col(layer));
    inputs_.col(layer + 1) = inputs_.col(layer) + sums.unaryExpr(&Silu);
  }
  const auto x = inputs_.col(num_layers_);
  const auto rejected = parameters_.segment(output(), size_);
  const auto accepted = parameters_.segment(output() + size_, size_);
  return factor * (accepted - rejected).dot(x) +
         parameters_[output_bias() + 1] - parameters_[output_bias()];
}

WeightedLoss HeadNetwork::Loss(const StateExample& example) {
  return HeadLoss(Forward(example), example.accepted);
}

WeightedLoss HeadNetwork::AddGradient(const StateExample& example,
                                      Parameters* gradient) {
  NACRE_CHECK(gradient->size() == parameters_.size(),
              "a gradient of another size");
  const double logit = Forward(example);
  const double p = Sigmoid(logit);
  const double factor = 1.0 / scale_;
  // Of the accepted logit; the rejected one's is its opposite.
  const double error = kRejectWeight * (1.0 - example.accepted) * p -
                       example.accepted * (1.0 - p);
  (*gradient)[output_bias()] -= error;
  (*gradient)[output_bias() + 1] += error;
  const auto last = inputs_.col(num_layers_);
  gradient->segment(output(), size_) -= error * factor * last;
  gradient->segment(output() + size_, size_) += error * factor * last;
  input_error_ = error * factor *
                 (parameters_.segment(output() + size_, size_) -
                  parameters_.segment(output(), size_));
  const Eigen::Map<const RowMatrix> block(parameters_.data(), size_, size_);
  Eigen::Map<RowMatrix> block_gradient(gradient->data(), size_, size_);
  // The block is the same in all layers: its gradients add up.
  for (Eigen::Index layer = num_layers_; layer-- > 0;) {
    sum_error_ =
        input_error_.cwiseProduct(sums_.col(layer).unaryExpr(&SiluSlope));
    gradient->segment(block_bias(), size_) += sum_error_;
    sum_error_ *= factor;
    block_gradient.noalias() += sum_error_ * inputs_.col(layer).transpose();
    // The residual's own error stays, the block's comes to it.
    input_error_.noalias() += block.transpose() * sum_error_;
  }
  return HeadLoss(logit, example.accepted);
}

speculation::AcceptanceHead HeadNetwork::Weights() const {
  const double factor = 1.0 / scale_;
  speculation::AcceptanceHead head;
  head.num_layers = static_cast<int>(num_layers_);
  head.block = Floats(parameters_.head(size_ * size_), factor);
  head.block_bias = Floats(parameters_.segment(block_bias(), size_));
  head.output = Floats(parameters_.segment(output(), 2 * size_), factor);
  head.output_bias = Floats(parameters_.tail(2));
  return head;
}

}  // namespace nacre::tools
