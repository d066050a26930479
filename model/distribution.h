// What length policies read of a row of logits: probabilities and entropy of
// its softmax at temperature 1. No token depends on them.
//
// Thread-safe: immutable. The logits outlive it.

#ifndef MODEL_DISTRIBUTION_H_
#define MODEL_DISTRIBUTION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/softmax_sums.h"

namespace nacre::model {

class Distribution {
 public:
  // Over logits [1 or more]. NaN counts as -inf; where no logit is finite, or
  // one is infinite, all ids are equally likely.
  explicit Distribution(absl::Span<const float> logits);

  double entropy() const;  // nats
  double Probability(int32_t token_id) const;
  // The largest probabilities, descending; 0 past the last id.
  void FillTop(absl::Span<float> top) const;

 private:
  const absl::Span<const float> logits_;
  const kernels::SoftmaxSums sums_;
  const bool is_uniform_;
};

}  // namespace nacre::model

#endif  // MODEL_DISTRIBUTION_H_
