// The acceptance head of policy `specdec++` while it is trained
// (speculation/policies/specdec_plus_plus.h). Backpropagation by hand, in
// double.
//
// Thread-compatible.

#ifndef TOOLS_CALIBRATE_HEAD_NETWORK_H_
#define TOOLS_CALIBRATE_HEAD_NETWORK_H_

#include <cstdint>

#include "absl/types/span.h"
#include "speculation/policies/specdec_plus_plus.h"
#include "tools/calibrate/dataset.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {

// SpecDec++ (Huang et al., arXiv:2405.19715): one block applied three times,
// and a rejected token weighs as much as six accepted ones.
inline constexpr int kHeadLayers = 3;
inline constexpr double kRejectWeight = 6.0;

// Cross-entropy of a token that is accepted with probability `accepted`, for
// the difference of the head's logits, accepted - rejected:
//   -accepted ln p - kRejectWeight (1 - accepted) ln(1 - p)
// of weight accepted + kRejectWeight (1 - accepted).
WeightedLoss HeadLoss(double logit, double accepted);

// Root mean square of all numbers of one or more states; 1 where all are 0.
double StateScaleOf(absl::Span<const StateExample> examples);

class HeadNetwork {
 public:
  // The block begins as the identity (zeros), the output with random weights.
  // Weights are trained times `scale`, so that a step of Adam changes what they
  // give by the same whatever the size of the states' numbers.
  // size, num_layers >= 1, scale > 0.
  HeadNetwork(int size, int num_layers, double scale, uint64_t seed);

  // block [size, size], block bias [size], output [2, size], output bias [2];
  // both matrices times scale.
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

  WeightedLoss Loss(const StateExample& example);

  // Adds d Loss.sum / d parameters() to *gradient, of the same size; returns
  // Loss.
  WeightedLoss AddGradient(const StateExample& example, Parameters* gradient);

  speculation::AcceptanceHead Weights() const;

 private:
  // Where the parts of parameters_ begin.
  Eigen::Index block_bias() const { return size_ * size_; }
  Eigen::Index output() const { return block_bias() + size_; }
  Eigen::Index output_bias() const { return output() + 2 * size_; }

  // Fills inputs_ and sums_; the difference of the two logits.
  double Forward(const StateExample& example);

  const Eigen::Index size_;
  const Eigen::Index num_layers_;
  const double scale_;
  Parameters parameters_;
  // Of the last Forward: what goes into each layer and into the output
  // [size, num_layers + 1], and each layer's block x + bias [size, num_layers].
  Eigen::MatrixXd inputs_;
  Eigen::MatrixXd sums_;
  // Scratch of AddGradient [size].
  Eigen::VectorXd input_error_;
  Eigen::VectorXd sum_error_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_HEAD_NETWORK_H_
