#include "simulation/random.h"

#include "gtest/gtest.h"
#include "tests/testing/fake_models.h"

namespace nacre::simulation {
namespace {

TEST(Random, OneSeedOneSequence) {
  Random first(3);
  Random second(3);
  Random other(4);
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t bits = first.Bits();
    EXPECT_EQ(bits, second.Bits());
    differ += bits != other.Bits() ? 1 : 0;
  }
  EXPECT_EQ(differ, 100);
}

TEST(Random, IsTheSameOnEveryMachine) {
  EXPECT_EQ(MixBits(0), 0xe220a8397b1dcdafu);  // splitmix64's first output
}

TEST(Random, FillsItsRanges) {
  Random random(1);
  double sum = 0.0;
  bool low = false;
  bool high = false;
  for (int i = 0; i < 10'000; ++i) {
    const double unit = random.Unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    sum += unit;
    const int64_t between = random.Between(-2, 2);
    ASSERT_GE(between, -2);
    ASSERT_LE(between, 2);
    low |= between == -2;
    high |= between == 2;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
  EXPECT_TRUE(low && high);
}

TEST(FakeModels, TheDraftDrawsTheTargetsTokenOrAnother) {
  const FakeModels models(/*seed=*/5, /*vocabulary=*/50);
  std::vector<int32_t> prefix = {1, 2, 3};
  for (int i = 0; i < 200; ++i) {
    const int32_t token_id = models.TargetToken(prefix);
    EXPECT_EQ(models.DraftToken(prefix, true), token_id);
    const int32_t other = models.DraftToken(prefix, false);
    EXPECT_NE(other, token_id);
    EXPECT_GE(other, 0);
    EXPECT_LT(other, 50);
    prefix.push_back(token_id);
  }
}

TEST(FakeModels, MatchesAtTheRateAsked) {
  const FakeModels models(/*seed=*/5, /*vocabulary=*/50);
  int matches = 0;
  for (int i = 0; i < 20'000; ++i) matches += models.Matches(i, 0.8) ? 1 : 0;
  EXPECT_NEAR(matches / 20'000.0, 0.8, 0.01);
}

}  // namespace
}  // namespace nacre::simulation
