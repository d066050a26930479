#include "tools/calibrate/head_network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "common/check.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {
namespace {

// x * sigmoid(x), and its derivative.
double Silu(double x) { return x * Sigmoid(x); }
double SiluSlope(double x) {
  const double s = Sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

std::vector<float> Floats(const double* values, size_t count, double factor) {
  std::vector<float> floats(count);
  for (size_t i = 0; i < count; ++i) {
    floats[i] = static_cast<float>(values[i] * factor);
  }
  return floats;
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
  double sum = 0.0;
  size_t count = 0;
  for (const StateExample& example : examples) {
    for (const float value : example.state) {
      sum += static_cast<double>(value) * value;
    }
    count += example.state.size();
  }
  const double scale = std::sqrt(sum / static_cast<double>(count));
  return scale > 0.0 ? scale : 1.0;
}

HeadNetwork::HeadNetwork(int size, int num_layers, double scale, uint64_t seed)
    : size_(static_cast<size_t>(size)),
      num_layers_(static_cast<size_t>(num_layers)),
      scale_(scale),
      input_error_(size_),
      sum_error_(size_) {
  NACRE_CHECK(size >= 1 && num_layers >= 1 && scale > 0.0,
              "a head without layers, or of states that are 0");
  parameters_.assign(output_bias() + 2, 0.0);
  inputs_.resize((num_layers_ + 1) * size_);
  sums_.resize(num_layers_ * size_);
  std::mt19937_64 random(seed);
  const double spread = std::sqrt(1.0 / static_cast<double>(size_));
  for (size_t i = output(); i < output_bias(); ++i) {
    parameters_[i] = spread * Normal(random);
  }
}

double HeadNetwork::Forward(const StateExample& example) {
  NACRE_CHECK(example.state.size() == size_, "a state of another model");
  std::copy(example.state.begin(), example.state.end(), inputs_.begin());
  const double factor = 1.0 / scale_;
  for (size_t layer = 0; layer < num_layers_; ++layer) {
    const double* x = &inputs_[layer * size_];
    double* next = &inputs_[(layer + 1) * size_];
    double* sums = &sums_[layer * size_];
    for (size_t i = 0; i < size_; ++i) {
      sums[i] = factor * DotOf(&parameters_[i * size_], x, size_) +
                parameters_[block_bias() + i];
      next[i] = x[i] + Silu(sums[i]);
    }
  }
  const double* x = &inputs_[num_layers_ * size_];
  const double* rejected = &parameters_[output()];
  return factor *
             (DotOf(rejected + size_, x, size_) - DotOf(rejected, x, size_)) +
         parameters_[output_bias() + 1] - parameters_[output_bias()];
}

WeightedLoss HeadNetwork::Loss(const StateExample& example) {
  return HeadLoss(Forward(example), example.accepted);
}

double HeadNetwork::MeanLoss(absl::Span<const StateExample> examples) {
  NACRE_CHECK(!examples.empty(), "the loss of no example");
  WeightedLoss total;
  for (const StateExample& example : examples) {
    const WeightedLoss loss = Loss(example);
    total.sum += loss.sum;
    total.weight += loss.weight;
  }
  return total.sum / total.weight;
}

WeightedLoss HeadNetwork::AddGradient(const StateExample& example,
                                      std::vector<double>* gradient) {
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
  const double* last = &inputs_[num_layers_ * size_];
  for (size_t i = 0; i < size_; ++i) {
    const size_t rejected = output() + i;
    const size_t accepted = rejected + size_;
    (*gradient)[rejected] -= error * factor * last[i];
    (*gradient)[accepted] += error * factor * last[i];
    input_error_[i] =
        error * factor * (parameters_[accepted] - parameters_[rejected]);
  }
  // The block is the same in all layers: its gradients add up.
  for (size_t layer = num_layers_; layer-- > 0;) {
    const double* x = &inputs_[layer * size_];
    const double* sums = &sums_[layer * size_];
    for (size_t i = 0; i < size_; ++i) {
      sum_error_[i] = input_error_[i] * SiluSlope(sums[i]);
      (*gradient)[block_bias() + i] += sum_error_[i];
    }
    for (size_t i = 0; i < size_; ++i) {
      const double e = factor * sum_error_[i];
      AddScaled(e, x, size_, &(*gradient)[i * size_]);
      // The residual's own error stays, the block's comes to it.
      AddScaled(e, &parameters_[i * size_], size_, input_error_.data());
    }
  }
  return HeadLoss(logit, example.accepted);
}

speculation::AcceptanceHead HeadNetwork::Weights() const {
  const double factor = 1.0 / scale_;
  speculation::AcceptanceHead head;
  head.num_layers = static_cast<int>(num_layers_);
  head.block = Floats(parameters_.data(), size_ * size_, factor);
  head.block_bias = Floats(&parameters_[block_bias()], size_, 1.0);
  head.output = Floats(&parameters_[output()], 2 * size_, factor);
  head.output_bias = Floats(&parameters_[output_bias()], 2, 1.0);
  return head;
}

}  // namespace nacre::tools
