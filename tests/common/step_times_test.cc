#include "common/step_times.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre {
namespace {

using testing::HasSubstr;

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

TEST(ParseStepTimesTest, ReadsPoints) {
  const auto times = ParseStepTimes("1:10,8:12.5,16:0.001");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->At(1), 10'000'000);
  EXPECT_EQ(times->At(8), 12'500'000);
  EXPECT_EQ(times->At(16), 1'000);
}

TEST(ParseStepTimesTest, RefusesBadPoints) {
  const auto error = [](const char* text) {
    return std::string(ParseStepTimes(text).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("not in 1..100000"));
  EXPECT_THAT(error("0:1"), HasSubstr("not in 1..100000"));
  EXPECT_THAT(error("100001:1"), HasSubstr("not in 1..100000"));
  EXPECT_THAT(error("1"), HasSubstr("not in 0.001..100000"));
  EXPECT_THAT(error("1:0"), HasSubstr("\"1:0\": the milliseconds"));
  EXPECT_THAT(error("1:nan"), HasSubstr("not in 0.001..100000"));
  EXPECT_THAT(error("1:1e6"), HasSubstr("not in 0.001..100000"));
  EXPECT_THAT(error("1:5,1:6"), HasSubstr("\"1:6\": the rows do not rise"));
}

}  // namespace
}  // namespace nacre
