// `specdec++`: a head on the draft's hidden state says how likely the token
// before was accepted. The draft stops when it is likely that some token so far
// will be rejected. SpecDec++ (Huang et al., arXiv:2405.19715), section 3 and
// its released code.
//
// The hidden state of a row is that of the token that was fed. So a row judges
// the token before the one that it draws. The first token without a verdict is
// judged by the row after it. The newest is sent unjudged. The product runs
// over all unverified tokens, also of earlier chunks under way.

#ifndef SPECULATION_POLICIES_SPECDEC_PLUS_PLUS_H_
#define SPECULATION_POLICIES_SPECDEC_PLUS_PLUS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// First x <- x + SiLU(block x + block_bias), `num_layers` times with the same
// block, as the published heads have it. Then two logits, of which the second
// is "accepted".
struct AcceptanceHead {
  int num_layers = 3;
  std::vector<float> block;        // [size, size]
  std::vector<float> block_bias;   // [size]
  std::vector<float> output;       // [2, size]
  std::vector<float> output_bias;  // [2]

  size_t size() const { return block_bias.size(); }
  // The probability that the token that `hidden` [size] belongs to is accepted.
  double Accepted(absl::Span<const float> hidden) const;
};

// INVALID_ARGUMENT: shapes that disagree, no layer, a number that is not
// finite.
absl::Status Validate(const AcceptanceHead& head);

struct SpecDecPlusPlusOptions {
  double threshold = 0.7;  // of the probability that a token is rejected
  int min_length = 2;      // of a chunk; its longest is DraftLength's
};

// The head is valid, of the draft's hidden size, and outlives the policy.
std::unique_ptr<LengthPolicy> MakeSpecDecPlusPlusPolicy(
    const AcceptanceHead* head, const SpecDecPlusPlusOptions& options);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_SPECDEC_PLUS_PLUS_H_
