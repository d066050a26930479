// Rows of logits of all kinds, to try samplers on: smooth, peaked, full of
// ties, with holes, and those that are hard on purpose.

#ifndef TESTS_MODEL_RANDOM_ROWS_H_
#define TESTS_MODEL_RANDOM_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "common/sampling_params.h"
#include "common/token_draw.h"
#include "model/logit_row.h"

namespace nacre::model {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
T Pick(std::mt19937& rng, std::initializer_list<T> values) {
  return values.begin()[rng() % values.size()];
}

inline std::vector<float> RandomLogits(std::mt19937* rng, int count) {
  std::normal_distribution<float> normal;
  const float scale = Pick(*rng, {0.1f, 3.0f, 30.0f, 1e5f});
  const float shift = Pick(*rng, {0.0f, 0.0f, 20.0f, -300.0f});
  const bool has_ties = (*rng)() % 3 == 0;
  const bool has_holes = (*rng)() % 4 == 0;
  const bool has_nans = (*rng)() % 2 == 0;  // among them
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& logit : logits) {
    logit = scale * normal(*rng) + shift;
    if (has_ties) logit = std::round(logit);
    if (has_holes && (*rng)() % 3 == 0) {
      logit = Pick(*rng, {has_nans ? kNaN : -kInfinity, -kInfinity});
    }
  }
  return logits;
}

// The sampler's token of the first `limit` logits, as a device tells it.
inline int32_t AsDrawn(const std::vector<float>& logits, int limit,
                       int32_t token_id) {
  const auto end = logits.begin() + limit;
  const bool is_sound =
      std::any_of(logits.begin(), end,
                  [](float x) { return x > -kInfinity; }) &&
      std::all_of(logits.begin(), end, [](float x) { return x < kInfinity; });
  return is_sound ? token_id : kUnsoundDraw;
}

// One-hot, equal, almost equal, all but a few impossible, a slope so long that
// exponents differ, numbers next to the smallest.
inline std::vector<float> HardLogits(std::mt19937* rng, int count) {
  std::vector<float> logits(static_cast<size_t>(count));
  const auto any = [&]() -> float& { return logits[(*rng)() % logits.size()]; };
  const float level = Pick(*rng, {0.0f, 1.0f, -7.0f, 3e4f});
  switch ((*rng)() % 6) {
    case 0:
      std::fill(logits.begin(), logits.end(), level);
      any() = level + Pick(*rng, {0.5f, 22.0f, 40.0f, 1000.0f});
      break;
    case 1:
      std::fill(logits.begin(), logits.end(), level);
      break;
    case 2:
      for (float& logit : logits) {
        logit = (*rng)() % 2 == 0 ? level : std::nextafter(level, kInfinity);
      }
      break;
    case 3:
      std::fill(logits.begin(), logits.end(), -kInfinity);
      for (int i = 0; i < 5; ++i) {
        any() = level + static_cast<float>((*rng)() % 3);
      }
      break;
    case 4:
      for (float& logit : logits) {
        logit = std::ldexp(Pick(*rng, {1.0f, -1.0f}),
                           static_cast<int>((*rng)() % 140) - 120);
      }
      break;
    default:
      for (float& logit : logits) {
        logit = std::ldexp(static_cast<float>((*rng)() % 9), -149);
      }
      any() = Pick(*rng, {kNaN, -kInfinity});
  }
  return logits;
}

inline SamplingParams RandomParams(std::mt19937& rng) {
  SamplingParams params;
  params.temperature = Pick(rng, {0.0f, 1e-3f, 0.3f, 0.8f, 1.0f, 1.7f, 50.0f});
  params.top_k = Pick(rng, {0, 0, 1, 2, 7, 40, 1000, 100000});
  params.top_p = Pick(rng, {1.0f, 1.0f, 1e-6f, 0.3f, 0.9f, 0.999f});
  params.min_p = Pick(rng, {0.0f, 0.0f, 0.02f, 0.5f, 1.0f});
  params.repetition_penalty = Pick(rng, {1.0f, 1.0f, 1.2f, 0.5f});
  params.frequency_penalty = Pick(rng, {0.0f, 0.0f, 0.7f, -1.0f});
  params.presence_penalty = Pick(rng, {0.0f, 0.0f, 1.5f});
  params.seed = rng() * uint64_t{0x100000001};
  return params;
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_RANDOM_ROWS_H_
