#include "model/sampling_math.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/deterministic_math.h"
#include "common/philox.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(SamplingMathTest, NoiseIsThatOfPhilox) {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 100; ++trial) {
    const uint64_t seed = uint64_t{rng()} << 32 | rng();
    const int position = static_cast<int>(rng() % 100000);
    const int first_id = static_cast<int>(rng() % 100000) * 4;
    uint32_t bits[kNoiseChunk];
    NoiseBits(seed, position, first_id, bits);
    for (int i = 0; i < kNoiseChunk; ++i) {
      const int id = first_id + i;
      EXPECT_EQ(bits[i],
                NoiseBlock(seed, static_cast<uint32_t>(position),
                           static_cast<uint32_t>(id / 4),
                           NoisePurpose::kSample)[static_cast<size_t>(id % 4)]);
    }
  }
}

TEST(SamplingMathTest, TheBoundIsAboveTheNoiseAndCloseWhereItCounts) {
  const auto check = [](uint32_t bits) {
    const float noise = GumbelFromBits(bits);
    const float bound = GumbelUpperBound(bits);
    ASSERT_GE(bound, noise) << bits;
    // -ln(1 - u) nears the noise as u nears 1; the last few numbers are coarse.
    if (bits > 0xE6666666u && bits < 0xFFFFFF00u) {
      ASSERT_LT(bound, noise + 0.2f) << bits;
    }
  };
  for (uint32_t i = 0; i < 100000; ++i) {
    check(i);
    check(~i);
    check(i * 42949u);
  }
  for (int shift = 0; shift < 32; ++shift) {
    for (uint32_t i = 0; i < 8; ++i) {
      check((uint32_t{1} << shift) - i);
      check(~((uint32_t{1} << shift) - i));
    }
  }
}

TEST(SamplingMathTest, AnyMayReachLooksAtEveryToken) {
  std::vector<float> logits(kNoiseChunk, -100.0f);
  std::vector<uint32_t> bits(kNoiseChunk, 0xFFFFFFFFu);
  EXPECT_FALSE(AnyMayReach(logits.data(), bits.data(), 1.0f, 0.0f));
  for (float& logit : logits) {
    logit = -10.0f;  // 12.8 with the noise
    EXPECT_TRUE(AnyMayReach(logits.data(), bits.data(), 1.0f, 12.0f));
    EXPECT_FALSE(AnyMayReach(logits.data(), bits.data(), 1.0f, 13.0f));
    EXPECT_FALSE(AnyMayReach(logits.data(), bits.data(), 0.5f, 12.0f));
    logit = kNaN;
    EXPECT_FALSE(AnyMayReach(logits.data(), bits.data(), 1.0f, -1e9f + 1e9f));
    logit = -100.0f;
  }
}

TEST(SamplingMathTest, MassesAreThoseOfTheDeterministicExponential) {
  std::vector<float> logits = {5.0f,   kNaN,    -kInfinity, 4.9999995f,
                               -82.0f, -81.99f, -16.0f,     -3e38f};
  for (int i = 0; i < 20000; ++i) {
    logits.push_back(5.0f - 0.0011f * static_cast<float>(i));
  }
  const int count = static_cast<int>(logits.size());
  std::vector<float> differences(logits.size());
  std::vector<int32_t> masses(logits.size());
  for (const float temperature : {1.0f, 0.7f}) {
    const float best = 5.0f / temperature;
    ProbabilityMasses(logits.data(), count, temperature, best,
                      differences.data(), masses.data());
    EXPECT_EQ(masses[0], 1 << 30);
    EXPECT_EQ(masses[1], 0);
    EXPECT_EQ(masses[2], 0);
    int64_t total = 0;
    int64_t above_2 = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const float difference = logits[i] / temperature - best;
      if (std::isnan(difference)) continue;
      ASSERT_EQ(differences[i], difference);
      const int32_t mass =
          static_cast<int32_t>(DeterministicExp(difference) * kMassOne);
      ASSERT_EQ(masses[i], mass) << difference;
      if (difference < kNegligibleDifference) {
        ASSERT_EQ(mass, 0) << difference;
      }
      total += mass;
      if (difference >= -2.0f) above_2 += mass;
    }
    EXPECT_EQ(MassAbove(differences.data(), masses.data(), count,
                        kNegligibleDifference),
              total);
    EXPECT_EQ(MassAbove(differences.data(), masses.data(), count, -2.0f),
              above_2);
  }
}

}  // namespace
}  // namespace nacre::model
