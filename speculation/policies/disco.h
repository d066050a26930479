// `disco`: a small network reads the ten largest probabilities of the draft,
// its entropy and how far the answer has got. It says how likely the token is
// right. DISCO (Mamou et al., arXiv:2405.04304), section 3 and App. D.1.
//
// The paper gives neither width nor activation; here: one hidden layer of any
// width, ReLU, sigmoid. The index is the paper's: of the token in the answer,
// not in the chunk.

#ifndef SPECULATION_POLICIES_DISCO_H_
#define SPECULATION_POLICIES_DISCO_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

// [kTopProbabilities probabilities descending, entropy in nats, index / 1000]
inline constexpr int kDiscoInputs = kTopProbabilities + 2;
inline constexpr float kDiscoIndexScale = 1e-3f;

struct DiscoWeights {
  std::vector<float> hidden_weight;  // [width, kDiscoInputs]
  std::vector<float> hidden_bias;    // [width]
  std::vector<float> output_weight;  // [width]
  float output_bias = 0.0f;
};

// INVALID_ARGUMENT: shapes that disagree, no width, a number that is not
// finite.
absl::Status Validate(const DiscoWeights& weights);

// What the network says of one row: how likely its token is accepted.
//   weights valid; inputs [kDiscoInputs]
double DiscoProbability(const DiscoWeights& weights,
                        absl::Span<const float> inputs);

// Stops where the network's sigmoid is below `threshold`, in [0, 1]. The
// weights are valid and outlive the policy.
std::unique_ptr<LengthPolicy> MakeDiscoPolicy(const DiscoWeights* weights,
                                              double threshold);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_DISCO_H_
