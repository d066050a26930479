// `constant` with a length of its own, and `optimal-static`: chunks of a fixed
// number of tokens. Which number is best: BestSdWindow (law.h), with alpha and
// c from a trace.

#ifndef SPECULATION_POLICIES_CONSTANT_H_
#define SPECULATION_POLICIES_CONSTANT_H_

#include <memory>

#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// `length` >= 1.
std::unique_ptr<LengthPolicy> MakeConstantPolicy(int length);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_CONSTANT_H_
