#include "simulation/match_source.h"

#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::simulation {
namespace {

TEST(IndependentMatches, HasTheRateAndTheRunsOfIndependentTokens) {
  for (const double alpha : {0.1, 0.5, 0.8, 0.95}) {
    const auto matches = IndependentMatches(alpha, /*seed=*/3);
    const int count = 100'000;
    int matched = 0;
    int pairs = 0;     // a match after a match
    int restarts = 0;  // a match after a mismatch
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

TEST(IndependentMatches, MismatchesHaveRanksWithTheirShares) {
  const speculation::MismatchShares shares = {0.5, 0.2, 0, 0, 0, 0, 0.1, 0.2};
  const auto matches = IndependentMatches(0.6, /*seed=*/4, shares);
  std::map<int, int> counts;
  int mismatches = 0;
  for (int i = 0; mismatches < 1000; ++i) {
    const int rank = matches->GuessAt(i).rank;
    if (rank == 1) continue;
    ++mismatches;
    ++counts[rank];
  }
  // Of a whole round of the strata.
  EXPECT_EQ(counts,
            (std::map<int, int>{
                {2, 500}, {3, 200}, {8, 100}, {speculation::kBeyond, 200}}));
}

// What a draft whose calibration has its prior makes of them.
TEST(IndependentMatches, ScoresStandForTheProbabilitiesOfRanks) {
  const auto matches = IndependentMatches(0.6, /*seed=*/4, {0.5, 0.25, 0.25});
  const std::vector<float>& scores = matches->GuessAt(0).scores;
  ASSERT_EQ(scores.size(), 8u);
  EXPECT_EQ(scores[0], 0);
  std::vector<float> log2s(8);
  speculation::ScoreCalibration().Apply(scores, absl::MakeSpan(log2s));
  constexpr double kWithin = speculation::ScoreCalibration::kPriorWithin;
  EXPECT_NEAR(std::exp2(log2s[0]), kWithin * 0.6, 1e-4);
  EXPECT_NEAR(std::exp2(log2s[1]), kWithin * 0.2, 1e-4);
  EXPECT_NEAR(std::exp2(log2s[2]), kWithin * 0.1, 1e-4);
  EXPECT_NEAR(std::exp2(log2s[3]), kWithin * 0.1, 1e-4);
  EXPECT_LT(std::exp2(log2s[4]), 1e-4);
  for (int i = 1; i < 8; ++i) EXPECT_LE(scores[i], scores[i - 1]);
  // They fall also where the second candidate is likelier.
  const auto odd = IndependentMatches(0.1, /*seed=*/4, {1});
  EXPECT_EQ(odd->GuessAt(0).scores[1], 0);
}

TEST(IndependentMatches, GuessesElsewhereAreLikeTheOthers) {
  const auto matches = IndependentMatches(0.6, /*seed=*/4);
  EXPECT_EQ(matches->GuessElsewhere(77).scores, matches->GuessAt(3).scores);
  const auto trace = std::make_shared<const MatchTrace>(
      MatchTrace{{1, {0, -1}}, {2, {0, -2}}});
  const auto recorded = RecordedMatches(trace, /*first=*/0);
  EXPECT_EQ(recorded->GuessElsewhere(4), (*trace)[0]);
  EXPECT_EQ(recorded->GuessElsewhere(5), (*trace)[1]);
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
