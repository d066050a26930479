// The target's probabilities of one generated token, as its worker measured
// them and the client sees them.

#ifndef COMMON_TOKEN_LOGPROBS_H_
#define COMMON_TOKEN_LOGPROBS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace nacre {

// The most likely tokens that can be asked for beside the one drawn.
inline constexpr int kMaxTopLogprobs = 20;

struct TokenLogprobs {
  int32_t token_id = 0;
  float logprob = 0.0f;
  std::vector<std::pair<int32_t, float>> top;  // best first; ties: lower id

  bool operator==(const TokenLogprobs&) const = default;
};

}  // namespace nacre

#endif  // COMMON_TOKEN_LOGPROBS_H_
