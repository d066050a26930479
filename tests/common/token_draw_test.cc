#include "common/token_draw.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace nacre {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

TEST(TokenDrawTest, OrderedBitsRiseWithTheFloat) {
  const std::vector<float> rising = {-kInfinity, -kLargest, -1.0f,
                                     -kTiny,     0.0f,      kTiny,
                                     1.0f,       kLargest,  kInfinity};
  for (size_t i = 1; i < rising.size(); ++i) {
    EXPECT_LT(OrderedBits(rising[i - 1]), OrderedBits(rising[i])) << rising[i];
  }
  EXPECT_EQ(OrderedBits(-0.0f), OrderedBits(0.0f));
  EXPECT_GT(OrderedBits(-kInfinity), 0u);
}

TEST(TokenDrawTest, ATieGoesToTheLowerId) {
  for (const float temperature : {0.0f, 1.0f}) {
    const uint64_t first = DrawKey(temperature, 2.0f, 99, 3);
    const uint64_t second = DrawKey(temperature, 2.0f, 99, 4);
    EXPECT_GT(first, second);
    EXPECT_EQ(DrawnId(first), 3);
    EXPECT_EQ(DrawnId(second), 4);
  }
  EXPECT_GT(DrawKey(0.0f, -0.0f, 0, 1), DrawKey(0.0f, 0.0f, 0, 2));
  EXPECT_EQ(DrawnId(DrawKey(0.0f, 1.0f, 0, 0x7FFFFFFF)), 0x7FFFFFFF);
}

TEST(TokenDrawTest, WhatCannotBeDrawnHasNoKey) {
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    EXPECT_EQ(DrawKey(temperature, -kInfinity, ~0u, 5), 0u);
  }
  // A number, but -inf once scaled: below all that are not.
  EXPECT_EQ(DrawKey(0.3f, -kLargest, ~0u, 5), kLeastDrawKey);
  EXPECT_GT(DrawKey(1.0f, -kLargest, 0, 5), kLeastDrawKey);
  EXPECT_EQ(DrawnId(kLeastDrawKey), 0);
}

// However few, and whatever stands beside.
TEST(TokenDrawTest, ARowWithNaNIsUnsound) {
  for (const float temperature : {0.0f, 1e-40f, 0.3f, 1.0f}) {
    for (const float nan : {kNaN, -kNaN}) {
      const uint64_t key = DrawKey(temperature, nan, 99, 5);
      EXPECT_EQ(DrawnId(key), kUnsoundDraw);
      for (const float other :
           {-kInfinity, -kLargest, 0.0f, kLargest, kInfinity}) {
        EXPECT_GT(key, DrawKey(temperature, other, ~0u, 0)) << other;
      }
    }
  }
}

TEST(TokenDrawTest, ARowWithoutNumbersOrWithInfinityIsUnsound) {
  EXPECT_EQ(DrawnId(0), kUnsoundDraw);
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    EXPECT_EQ(DrawnId(DrawKey(temperature, kInfinity, 99, 5)), kUnsoundDraw);
    EXPECT_EQ(DrawnId(DrawKey(temperature, kLargest, ~0u, 5)), 5);
  }
  // Infinite by its temperature only.
  EXPECT_EQ(DrawnId(DrawKey(1e-40f, 1.0f, 99, 5)), 5);
  EXPECT_EQ(DrawnId(DrawKey(1e-40f, -1.0f, 99, 5)), 0);
}

TEST(TokenDrawTest, TheScoreIsTheScaledLogitAndItsNoise) {
  const float score = 1.25f / 0.3f + GumbelFromBits(12345);
  EXPECT_EQ(DrawKey(0.3f, 1.25f, 12345, 8), DrawKey(0.0f, score, 0, 8));
  // Noise is for temperatures only.
  EXPECT_EQ(DrawKey(0.0f, 1.25f, 12345, 8), DrawKey(0.0f, 1.25f, 1, 8));
}

TEST(TokenDrawTest, InfinitelyLargeOnesAreComparedByTheirLogits) {
  // Above all that are not, whatever their noise.
  EXPECT_GT(DrawKey(0.3f, 2e38f, 0, 9), DrawKey(0.3f, 1e38f, ~0u, 1));
  EXPECT_GT(DrawKey(0.3f, 3e38f, 0, 9), DrawKey(0.3f, 2e38f, ~0u, 1));
  EXPECT_GT(DrawKey(0.3f, kInfinity, 0, 9), DrawKey(0.3f, 3e38f, ~0u, 1));
  EXPECT_GT(DrawKey(0.3f, 3e38f, 0, 1), DrawKey(0.3f, 3e38f, ~0u, 9));
  EXPECT_GT(DrawKey(1.0f, kInfinity, 0, 9), DrawKey(1.0f, kLargest, ~0u, 1));
}

}  // namespace
}  // namespace nacre
