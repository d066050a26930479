// The ratio test: a draft token x, drawn from q, is accepted with probability
// min(1, p(x) / q(x)). Else the token is drawn from norm(max(p - q, 0)). What
// comes out has the law p, whatever q is (Leviathan et al., "Fast Inference
// from Transformers via Speculative Decoding", ICML 2023, Algorithm 1).
//
// That holds only if the draw from q, the test and the draw from what remains
// use independent numbers. Nor may anything decide by a token's own value
// whether it is tested. So they use a NoisePurpose each, and policies decide
// before the draw (LengthPolicy::looks_at_token).
//
// Pure functions of their arguments.

#ifndef SPECULATION_RATIO_TEST_H_
#define SPECULATION_RATIO_TEST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/philox.h"
#include "speculation/pipeline.h"

namespace nacre::speculation {

// The probability of token_ids[i] is weights[i] over the sum of all, added left
// to right in double.
struct WeightedTokens {
  absl::Span<const int32_t> token_ids;  // each once, at least one
  absl::Span<const float> weights;      // of each, finite and > 0
};

inline WeightedTokens Weighted(const DraftDistribution& distribution) {
  return {distribution.token_ids, distribution.weights};
}

// Whether a distribution that a peer sent can be tested with: 1 to
// kMaxDistribution ids, each once, one of them token_id; weights finite and >
// 0.
bool IsValid(const DraftDistribution& distribution, int32_t token_id);

// Draws a token for absolute `position` with the numbers of `purpose`.
int32_t DrawToken(WeightedTokens row, uint64_t seed, int position,
                  NoisePurpose purpose);

// The target's token for `position`, where the draft drew `drafted` from
// `draft`, which is IsValid. It is `drafted` exactly if that is accepted.
//   target: what the target may draw, ids ascending
int32_t JudgeByRatio(WeightedTokens target, int32_t drafted,
                     const DraftDistribution& draft, uint64_t seed,
                     int position);

}  // namespace nacre::speculation

#endif  // SPECULATION_RATIO_TEST_H_
