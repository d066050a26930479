// The network of policy `disco` while it is trained: kDiscoInputs inputs, one
// hidden layer of `width` with ReLU, one output with a sigmoid; its loss is the
// cross-entropy. Backpropagation by hand, in double.
//
// Thread-compatible.

#ifndef TOOLS_CALIBRATE_NETWORK_H_
#define TOOLS_CALIBRATE_NETWORK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "speculation/policies/disco.h"
#include "tools/calibrate/dataset.h"

namespace nacre::tools {

// The mean and the spread of each input. The network is trained on (x - mean) /
// spread: the inputs' sizes differ a thousandfold.
struct InputScale {
  std::array<double, speculation::kDiscoInputs> mean = {};
  std::array<double, speculation::kDiscoInputs> spread = {};  // > 0
};

// Of one or more examples. An input that hardly varies has a spread of 1.
InputScale ScaleOf(absl::Span<const Example> examples);

class Network {
 public:
  // Random weights of He et al. (arXiv:1502.01852), biases 0. width >= 1.
  Network(int width, InputScale scale, uint64_t seed);

  // hidden.weight [width, kDiscoInputs], hidden.bias [width],
  // output.weight [width], output.bias [1], one behind the other.
  std::vector<double>& parameters() { return parameters_; }
  const std::vector<double>& parameters() const { return parameters_; }

  // -ln of what it says of what happened, nats.
  double Loss(const Example& example) const;
  // The mean over one or more.
  double MeanLoss(absl::Span<const Example> examples) const;

  // Adds d Loss / d parameters() to *gradient, of the same size; returns Loss.
  double AddGradient(const Example& example, std::vector<double>* gradient);

  // The same function of inputs that are not scaled.
  speculation::DiscoWeights Weights() const;

 private:
  // Where the parts of parameters_ begin.
  size_t hidden_bias() const { return width_ * speculation::kDiscoInputs; }
  size_t output_weight() const { return hidden_bias() + width_; }
  size_t output_bias() const { return output_weight() + width_; }

  using Inputs = std::array<double, speculation::kDiscoInputs>;
  Inputs Scaled(const Example& example) const;
  // Hidden unit `unit` before its ReLU.
  double HiddenSum(const Inputs& inputs, size_t unit) const;

  const size_t width_;
  const InputScale scale_;
  std::vector<double> parameters_;
  std::vector<double> hidden_;  // scratch of AddGradient [width], before ReLU
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_NETWORK_H_
