// Calibration files of length policies with random weights: what they decide is
// arbitrary and varies, and no token depends on it.

#ifndef TESTS_INTEGRATION_RANDOM_POLICY_H_
#define TESTS_INTEGRATION_RANDOM_POLICY_H_

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/files.h"
#include "model/checkpoint.h"
#include "tests/draft_worker/policy_folder.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {

inline std::string Fingerprint(const std::string& dir) {
  const auto checkpoint = model::Checkpoint::Open(dir);
  const auto config = ReadFile(dir + "/config.json");
  EXPECT_TRUE(checkpoint.ok() && config.ok());
  return (*checkpoint)->Fingerprint(*config);
}

// Small random weights: what they decide is arbitrary and varies.
inline testing::NamedTensors Shuffled(testing::NamedTensors tensors,
                                      bool tied = false) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  for (auto& [name, tensor] : tensors) {
    if (tied && name.find("model.0.") == std::string::npos &&
        name.find(".linear.") != std::string::npos) {
      continue;  // set below
    }
    for (float& value : tensor.values) value = normal(random);
  }
  if (!tied) return tensors;
  for (auto& [name, tensor] : tensors) {
    const size_t at = name.find(".linear.");
    if (at != std::string::npos) {
      tensor.values = tensors["model.0" + name.substr(at)].values;
    }
  }
  return tensors;
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_RANDOM_POLICY_H_
