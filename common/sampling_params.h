// How a token is drawn, as the coordinator checks it and the workers apply it.

#ifndef COMMON_SAMPLING_PARAMS_H_
#define COMMON_SAMPLING_PARAMS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace nacre {

// How far a bias moves a logit, and for how many ids at most.
inline constexpr float kMaxLogitBias = 100.0f;
inline constexpr int kMaxLogitBiases = 1024;

// Defaults are neutral. `top_k` 0 keeps all.
struct SamplingParams {
  float temperature = 0.0f;         // finite, >= 0; 0 is greedy
  int32_t top_k = 0;                // >= 0
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; over prompt and generated tokens
  float frequency_penalty = 0.0f;   // [-2, 2]; over generated tokens
  float presence_penalty = 0.0f;    // [-2, 2]; over generated tokens
  uint64_t seed = 0;
  // (token id, added to its logit before everything else), each id once; at
  // most kMaxLogitBiases, values in [-kMaxLogitBias, kMaxLogitBias].
  std::vector<std::pair<int32_t, float>> logit_bias;

  bool operator==(const SamplingParams&) const = default;
};

// INVALID_ARGUMENT with the field, the value and the limit; NaN is refused.
absl::Status ValidateSamplingParams(const SamplingParams& params);

}  // namespace nacre

#endif  // COMMON_SAMPLING_PARAMS_H_
