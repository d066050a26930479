// `svip`: stop after a token drawn from a distribution of high entropy H:
// 1 - sqrt(c H) estimates a lower bound of its acceptance. SVIP (Zhang et al.,
// arXiv:2411.18462), section 3 and its released code.

#ifndef SPECULATION_POLICIES_SVIP_H_
#define SPECULATION_POLICIES_SVIP_H_

#include <memory>

#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// Stops where sqrt(c * entropy) > h, c and h >= 0. The published thresholds
// belong to c = 0.15; the paper's Algorithm 1 prints c = 1.
std::unique_ptr<LengthPolicy> MakeSvipPolicy(double c, double h);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_SVIP_H_
