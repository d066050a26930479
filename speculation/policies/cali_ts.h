// `cali-ts`: after each token a coin whose probability is drawn from a normal
// posterior. It weighs what a small model expects of this token against the
// share of tokens validated so far. EESD (Liu et al., arXiv:2406.03853),
// Algorithm 3 and Eq. 5 to 7, with another Eq. 8: the printed estimate of theta
// is (theta0 + t) / (t + 1) whatever was rejected (docs/policies.md).

#ifndef SPECULATION_POLICIES_CALI_TS_H_
#define SPECULATION_POLICIES_CALI_TS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// theta_M = softmax(mix [W^j h_T ; h_D])[1], j = 1 for the first token after
// what is verified, up to 10 for the tenth and all after it. h_T: the target's
// hidden state at the last position it has processed. h_D: the draft's at the
// position that the token is drawn from.
struct CaliTsModel {
  static constexpr int kSteps = 10;
  int target_size = 0;              // of h_T
  int draft_size = 0;               // of h_D
  std::vector<float> step_weights;  // [kSteps, target_size, target_size]
  std::vector<float> mix;           // [2, target_size + draft_size]
};

// INVALID_ARGUMENT: shapes that disagree, a number that is not finite.
absl::Status Validate(const CaliTsModel& model);

// The model as it is run. Its softmax of two sees only the difference of the
// logits, which is linear in both states. What does not depend on them is
// multiplied once. A token costs a product of D, a state of the target kSteps
// of T.
class CaliTsScorer {
 public:
  explicit CaliTsScorer(const CaliTsModel& model);  // a valid one

  int target_size() const { return static_cast<int>(target_size_); }
  int draft_size() const { return static_cast<int>(draft_row_.size()); }

  // What h_T [target_size] adds to the logit of the `step`th token (from 0)
  // after what is verified.
  double TargetPart(int step, absl::Span<const float> target_hidden) const;
  // theta_M, of h_D [draft_size].
  double Score(double target_part, absl::Span<const float> draft_hidden) const;

 private:
  size_t target_size_;
  std::vector<float> target_rows_;  // [kSteps, target_size]
  std::vector<float> draft_row_;    // [draft_size]
};

struct CaliTsOptions {
  double sigma_model = 0.2;   // > 0: how far the model score may be off
  double sigma_sample = 0.5;  // > 0: the spread of one chunk's share
  double theta0 = 0.7;        // in [0, 1]: the share before the first chunk
  uint64_t seed = 0;
};

// The posterior of one token after `rounds` verified chunks, of which `share`
// was validated (Eq. 6 and 7). Without a model score its mean is `share`.
struct CaliTsPosterior {
  double mean = 0.0;
  double deviation = 0.0;
};
CaliTsPosterior PosteriorOf(const CaliTsOptions& options, int rounds,
                            double share, const double* model_score);

// Without a model (null), and while there is no state of the target, there is
// no model score.
// The model outlives the policy.
std::unique_ptr<LengthPolicy> MakeCaliTsPolicy(const CaliTsScorer* model,
                                               const CaliTsOptions& options);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_CALI_TS_H_
