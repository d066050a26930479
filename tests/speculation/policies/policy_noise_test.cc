#include "speculation/policies/policy_noise.h"

#include <set>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

TEST(PolicyNoise, IsUniform) {
  PolicyNoise noise(1);
  int below_tenth = 0;
  double sum = 0.0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = noise.Uniform();
    EXPECT_GT(value, 0.0);
    EXPECT_LT(value, 1.0);
    sum += value;
    below_tenth += value < 0.1 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
  EXPECT_NEAR(below_tenth, 10'000, 400);
}

TEST(PolicyNoise, HasNormalNumbers) {
  PolicyNoise noise(2);
  double sum = 0.0;
  double squares = 0.0;
  int beyond_two = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = noise.Normal();
    sum += value;
    squares += value * value;
    beyond_two += std::fabs(value) > 2.0 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 100'000, 0.0, 0.012);
  EXPECT_NEAR(squares / 100'000, 1.0, 0.02);
  EXPECT_NEAR(beyond_two, 4'550, 300);
}

// Neither another purpose's number nor one of its own twice.
TEST(PolicyNoise, SharesNoNumber) {
  std::set<PhiloxBlock> blocks;
  for (uint32_t position = 0; position < 50; ++position) {
    for (uint32_t block = 0; block < 50; ++block) {
      for (const NoisePurpose purpose :
           {NoisePurpose::kSample, NoisePurpose::kDraft, NoisePurpose::kAccept,
            NoisePurpose::kResidual}) {
        blocks.insert(NoiseBlock(7, position, block, purpose));
      }
    }
  }
  const size_t others = blocks.size();
  for (uint32_t block = 0; block < 50; ++block) {
    blocks.insert(NoiseBlock(7, 0, block, NoisePurpose::kPolicy));
  }
  EXPECT_EQ(blocks.size(), others + 50);
}

}  // namespace
}  // namespace nacre::speculation
