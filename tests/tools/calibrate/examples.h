// Rows with outcomes that follow a rule, for tests of the training.

#ifndef TESTS_TOOLS_CALIBRATE_EXAMPLES_H_
#define TESTS_TOOLS_CALIBRATE_EXAMPLES_H_

#include <algorithm>
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

}  // namespace nacre::tools

#endif  // TESTS_TOOLS_CALIBRATE_EXAMPLES_H_
