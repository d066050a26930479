// `beta-ts`: after each token a coin that shows "go on" with probability
// alpha / (alpha + beta), a Beta posterior of acceptance that each verified
// chunk updates. EESD (Liu et al., arXiv:2406.03853), Algorithm 2.
//
// The paper draws theta ~ Beta(alpha, beta) for every token and then the coin
// with probability theta. A fresh theta for each coin makes that the same as
// one coin with the mean. So lengths are geometric.

#ifndef SPECULATION_POLICIES_BETA_TS_H_
#define SPECULATION_POLICIES_BETA_TS_H_

#include <cstdint>
#include <memory>

#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// What a chunk of k tokens of which a were accepted adds.
enum class BetaUpdate {
  // alpha += a; beta += max(min(a + 2, k) - a, 0): Algorithm 2 with the
  // target's own token counted among the verified ones, the only reading that
  // does not break down.
  kPaper,
  // alpha += a; beta += 1 if any was rejected: the mean becomes the acceptance
  // rate.
  kBernoulli,
};

struct BetaTsOptions {
  double alpha0 = 4.0;  // > 0, both: the paper names no prior
  double beta0 = 1.0;
  BetaUpdate update = BetaUpdate::kPaper;
  uint64_t seed = 0;
};

std::unique_ptr<LengthPolicy> MakeBetaTsPolicy(const BetaTsOptions& options);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_BETA_TS_H_
