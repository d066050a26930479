// The model of policy `cali-ts` while it is trained
// (speculation/policies/cali_ts.h); its loss is the cross-entropy.
// Backpropagation by hand, in double.
//
// Thread-compatible.

#ifndef TOOLS_CALIBRATE_CALI_TS_NETWORK_H_
#define TOOLS_CALIBRATE_CALI_TS_NETWORK_H_

#include <cstdint>

#include "absl/types/span.h"
#include "speculation/policies/cali_ts.h"
#include "tools/calibrate/dataset.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {

// Root mean squares of the numbers of each model's states; 1 where all are 0.
struct CaliTsScale {
  double target = 1.0;
  double draft = 1.0;
};
CaliTsScale ScaleOf(absl::Span<const CaliTsExample> examples);

class CaliTsNetwork {
 public:
  // Step weights begin as the identity, the mix with random weights. States are
  // divided by the scale (> 0), which is folded into the mix. Sizes >= 1.
  CaliTsNetwork(int target_size, int draft_size, CaliTsScale scale,
                uint64_t seed);

  // step weights [kSteps, target_size, target_size], mix [2, target_size +
  // draft_size].
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

  // Of weight 1.
  WeightedLoss Loss(const CaliTsExample& example);

  // Adds d Loss / d parameters() to *gradient, of the same size; returns Loss.
  WeightedLoss AddGradient(const CaliTsExample& example, Parameters* gradient);

  // The same function of states that are not scaled.
  speculation::CaliTsModel Weights() const;

 private:
  // Where the parts of parameters_ begin.
  Eigen::Index step_weights(int step) const;
  Eigen::Index mix(Eigen::Index row) const;

  // Fills target_ and mixed_; the difference of the two logits.
  double Forward(const CaliTsExample& example);

  const Eigen::Index target_size_;
  const Eigen::Index draft_size_;
  const CaliTsScale scale_;
  Parameters parameters_;
  // Of the last Forward: the target's state, scaled, and what is mixed.
  Eigen::VectorXd target_;  // [target_size]
  Eigen::VectorXd mixed_;   // [target_size + draft_size]
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_CALI_TS_NETWORK_H_
