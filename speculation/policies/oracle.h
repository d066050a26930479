// `oracle`: draft up to the first token that the target will not draw. It knows
// from a recording of the target's own greedy answer, so it works at
// temperature 0 only. What it yields is the upper bound of every policy. DISCO
// (Mamou et al., arXiv:2405.04304), section 4.

#ifndef SPECULATION_POLICIES_ORACLE_H_
#define SPECULATION_POLICIES_ORACLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// `recorded`: the tokens of the answer from the first. It discards a token that
// differs, and any past the end of the recording.
std::unique_ptr<LengthPolicy> MakeOraclePolicy(std::vector<int32_t> recorded);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_ORACLE_H_
