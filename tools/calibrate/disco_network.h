// The network of policy `disco` while it is trained: kDiscoInputs inputs, one
// hidden layer of `width` with ReLU, one output with a sigmoid. Its loss is the
// cross-entropy. Backpropagation by hand, in double.
//
// Thread-compatible.

#ifndef TOOLS_CALIBRATE_DISCO_NETWORK_H_
#define TOOLS_CALIBRATE_DISCO_NETWORK_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "speculation/policies/disco.h"
#include "tools/calibrate/dataset.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {

// The mean and the spread of each input. The network is trained on (x - mean) /
// spread: the inputs' sizes differ a thousandfold.
struct InputScale {
  std::array<double, speculation::kDiscoInputs> mean = {};
  std::array<double, speculation::kDiscoInputs> spread = {};  // > 0
};

// Of one or more examples. An input that hardly varies has a spread of 1.
InputScale ScaleOf(absl::Span<const Example> examples);

class DiscoNetwork {
 public:
  // Random weights of He et al. (arXiv:1502.01852), biases 0. width >= 1.
  DiscoNetwork(int width, InputScale scale, uint64_t seed);

  // hidden.weight [width, kDiscoInputs], hidden.bias [width],
  // output.weight [width], output.bias [1].
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

  // Of weight 1.
  WeightedLoss Loss(const Example& example);

  // Adds d Loss / d parameters() to *gradient, of the same size; returns Loss.
  WeightedLoss AddGradient(const Example& example, Parameters* gradient);

  // The same function of inputs that are not scaled.
  speculation::DiscoWeights Weights() const;

 private:
  static constexpr Eigen::Index kInputs = speculation::kDiscoInputs;
  using HiddenWeight =
      Eigen::Matrix<double, Eigen::Dynamic, kInputs, Eigen::RowMajor>;

  // Where the parts of parameters_ begin.
  Eigen::Index hidden_bias() const { return width_ * kInputs; }
  Eigen::Index output_weight() const { return hidden_bias() + width_; }
  Eigen::Index output_bias() const { return output_weight() + width_; }

  // Fills inputs_ and hidden_; the sum before the sigmoid.
  double Forward(const Example& example);

  const Eigen::Index width_;
  const InputScale scale_;
  Parameters parameters_;
  // Of the last Forward: the inputs, scaled, and the hidden layer before its
  // ReLU.
  Eigen::Matrix<double, kInputs, 1> inputs_;
  Eigen::VectorXd hidden_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_DISCO_NETWORK_H_
