#include "simulation/step_times.h"

#include "gtest/gtest.h"

namespace nacre::simulation {
namespace {

TEST(StepTimes, InterpolatesBetweenItsPoints) {
  const StepTimes times({{1, 10e6}, {8, 17e6}, {16, 33e6}});
  EXPECT_EQ(times.At(1), 10'000'000);
  EXPECT_EQ(times.At(2), 11'000'000);
  EXPECT_EQ(times.At(8), 17'000'000);
  EXPECT_EQ(times.At(12), 25'000'000);
  EXPECT_EQ(times.At(16), 33'000'000);
  EXPECT_FALSE(times.flat());
}

TEST(StepTimes, IsFlatBeforeTheFirstAndGoesOnBehindTheLast) {
  const StepTimes times({{4, 10e6}, {8, 14e6}});
  EXPECT_EQ(times.At(1), 10'000'000);
  EXPECT_EQ(times.At(512), 14'000'000 + 504 * 1'000'000);
  const StepTimes falling({{1, 10e6}, {2, 9e6}});
  EXPECT_EQ(falling.At(100), 9'000'000);
}

TEST(StepTimes, FlatOnesStayFlat) {
  EXPECT_EQ(StepTimes::Flat(5e6).At(1), 5'000'000);
  EXPECT_EQ(StepTimes::Flat(5e6).At(512), 5'000'000);
  EXPECT_TRUE(StepTimes::Flat(5e6).flat());
  EXPECT_TRUE(StepTimes({{1, 7.0}, {9, 7.0}}).flat());
  EXPECT_EQ(StepTimes::Flat(0.2).At(1), 1);
}

}  // namespace
}  // namespace nacre::simulation
