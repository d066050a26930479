#include "speculation/policies/confidence.h"

#include "gtest/gtest.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

DraftRow RowOf(float probability) {
  DraftRow row;
  row.token = DrawnToken{7, probability};
  return row;
}

TEST(ConfidencePolicy, StopsBehindATokenBelowTheThreshold) {
  const auto policy = MakeConfidencePolicy(0.4);
  EXPECT_EQ(policy->Decide(RowOf(0.41f)), LengthDecision::kContinue);
  EXPECT_EQ(policy->Decide(RowOf(0.5f)), LengthDecision::kContinue);
  EXPECT_EQ(policy->Decide(RowOf(0.39f)), LengthDecision::kStop);
  EXPECT_EQ(policy->Decide(RowOf(0.0f)), LengthDecision::kStop);
}

TEST(ConfidencePolicy, TheDoubtfulTokenIsPartOfTheChunk) {
  TurnTaker turns(MakeConfidencePolicy(0.4));
  const float probabilities[] = {0.9f, 0.6f, 0.2f, 0.9f};
  EXPECT_EQ(turns.Draft([&](int i) { return RowOf(probabilities[i]); }), 3);
}

TEST(ConfidencePolicy, AThresholdOfZeroNeverStops) {
  EXPECT_EQ(MakeConfidencePolicy(0.0)->Decide(RowOf(0.0f)),
            LengthDecision::kContinue);
}

TEST(ConfidencePolicy, LooksAtTheToken) {
  const auto policy = MakeConfidencePolicy(0.4);
  EXPECT_TRUE(policy->looks_at_token());
  EXPECT_EQ(policy->needs(), RowNeeds{.token_probability = true});
}

}  // namespace
}  // namespace nacre::speculation
