// Rows with outcomes that follow a rule, for tests of the training.

#ifndef TESTS_TOOLS_CALIBRATE_EXAMPLES_H_
#define TESTS_TOOLS_CALIBRATE_EXAMPLES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tools/calibrate/dataset.h"

namespace nacre::tools {

inline double Draw(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) / 9007199254740992.0;
}

// The largest probability p is uniform in (0, 1), the others share the rest;
// the token is accepted with probability p. The last input is the index / 1000.
inline std::vector<Example> RandomExamples(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Example> examples(static_cast<size_t>(count));
  for (Example& example : examples) {
    const double p = Draw(random);
    example.inputs[0] = static_cast<float>(p);
    for (size_t i = 1; i < 10; ++i) {
      example.inputs[i] = static_cast<float>(
          std::min(p, (1.0 - p) / static_cast<double>(i + 1)));
    }
    example.inputs[10] = static_cast<float>(2.0 * (1.0 - p) * Draw(random));
    example.inputs[11] = static_cast<float>(0.1 * Draw(random));
    example.accepted = Draw(random) < p;
  }
  return examples;
}

// States of four numbers. Each token is accepted with the sigmoid of 0.8 times
// the second, which is in [2, 3] or in [-3, -2]: half of the tokens are likely
// to be accepted. The others mean nothing.
class RandomStates {
 public:
  static constexpr size_t kSize = 4;

  RandomStates(int count, uint64_t seed)
      : values_(static_cast<size_t>(count) * kSize) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      float* state = &values_[i * kSize];
      for (size_t j = 0; j < kSize; ++j) {
        state[j] = static_cast<float>(4.0 * (Draw(random) - 0.5));
      }
      const double sign = Draw(random) < 0.5 ? -1.0 : 1.0;
      state[1] = static_cast<float>(sign * (2.0 + Draw(random)));
      examples_.push_back({absl::MakeConstSpan(state, kSize),
                           Draw(random) < probability(i) ? 1.0 : 0.0});
    }
  }
  RandomStates(const RandomStates&) = delete;
  RandomStates& operator=(const RandomStates&) = delete;

  const std::vector<StateExample>& examples() const { return examples_; }
  // That example `i` is accepted.
  double probability(size_t i) const {
    return 1.0 / (1.0 + std::exp(-0.8 * values_[i * kSize + 1]));
  }

 private:
  std::vector<float> values_;
  std::vector<StateExample> examples_;
};

}  // namespace nacre::tools

#endif  // TESTS_TOOLS_CALIBRATE_EXAMPLES_H_
