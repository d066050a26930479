#include "simulation/match_source.h"

#include <cmath>
#include <memory>

#include "gtest/gtest.h"

namespace nacre::simulation {
namespace {

TEST(IndependentMatches, HasTheRateAndTheRunsOfIndependentTokens) {
  for (const double alpha : {0.1, 0.5, 0.8, 0.95}) {
    const auto matches = IndependentMatches(alpha, /*seed=*/3);
    const int count = 100'000;
    int matched = 0;
    int pairs = 0;     // a match behind a match
    int restarts = 0;  // a match behind a mismatch
    bool last = false;
    for (int i = 0; i < count; ++i) {
      const bool match = matches->At(i);
      matched += match ? 1 : 0;
      pairs += match && last ? 1 : 0;
      restarts += match && !last ? 1 : 0;
      last = match;
    }
    EXPECT_NEAR(matched, alpha * count, 0.005 * count) << alpha;
    EXPECT_NEAR(pairs / static_cast<double>(matched), alpha, 0.01) << alpha;
    EXPECT_NEAR(restarts / static_cast<double>(count - matched), alpha, 0.015)
        << alpha;
  }
}

// What stratified sampling is for: 1,000 runs have the mean length that
// infinitely many have, to a thousandth and not to some hundredths.
TEST(IndependentMatches, AShortRunHasTheRateAsked) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto matches = IndependentMatches(0.9, seed);
    int mismatches = 0;
    int index = 0;
    for (; mismatches < 1000; ++index) mismatches += matches->At(index) ? 0 : 1;
    EXPECT_NEAR(index / 1000.0, 10.0, 0.05) << seed;
  }
}

TEST(IndependentMatches, AnswersTheSameAgain) {
  const auto first = IndependentMatches(0.7, 9);
  const auto second = IndependentMatches(0.7, 9);
  EXPECT_EQ(first->At(5000), second->At(5000));
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(first->At(i), second->At(i));
}

TEST(IndependentMatches, KnowsAlwaysAndNever) {
  const auto never = IndependentMatches(0.0, 1);
  const auto always = IndependentMatches(1.0, 1);
  for (int i = 0; i < 5000; ++i) {
    EXPECT_FALSE(never->At(i));
    EXPECT_TRUE(always->At(i));
  }
}

TEST(RecordedMatches, ReplaysFromWhereItIsToldAndBeginsAgain) {
  const auto trace =
      std::make_shared<const MatchTrace>(MatchTrace{true, false, true, true});
  const auto matches = RecordedMatches(trace, /*first=*/1);
  const bool expected[] = {false, true, true, true, false, true};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(matches->At(i), expected[i]) << i;
}

}  // namespace
}  // namespace nacre::simulation
