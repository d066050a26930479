#include "speculation/policies/svip.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

constexpr double kPublishedC = 0.15;

LengthDecision Decide(double c, double h, double entropy) {
  DraftRow row;
  row.entropy = static_cast<float>(entropy);
  return MakeSvipPolicy(c, h)->Decide(row);
}

// Uniform over four: H = 1.3863, sqrt(0.15 H) = 0.456.
TEST(SvipPolicy, UniformOverFourLiesBetweenPointFourAndPointFive) {
  const double entropy = std::log(4.0);
  EXPECT_NEAR(std::sqrt(kPublishedC * entropy), 0.456, 5e-4);
  EXPECT_EQ(Decide(kPublishedC, 0.4, entropy), LengthDecision::kStop);
  EXPECT_EQ(Decide(kPublishedC, 0.5, entropy), LengthDecision::kContinue);
}

TEST(SvipPolicy, ACertainTokenNeverStops) {
  EXPECT_EQ(Decide(kPublishedC, 0.0, 0.0), LengthDecision::kContinue);
}

// The thresholds in nats: of the released code, and of the form that the paper
// prints, which stops 6.7 times too early with them.
TEST(SvipPolicy, ThePrintedFormStopsMuchEarlier) {
  EXPECT_EQ(Decide(kPublishedC, 0.3, 0.59), LengthDecision::kContinue);
  EXPECT_EQ(Decide(kPublishedC, 0.3, 0.61), LengthDecision::kStop);
  EXPECT_EQ(Decide(1.0, 0.3, 0.085), LengthDecision::kContinue);
  EXPECT_EQ(Decide(1.0, 0.3, 0.095), LengthDecision::kStop);
}

TEST(SvipPolicy, IsCappedWhereTheDraftIsSure) {
  EXPECT_EQ(TurnTaker(MakeSvipPolicy(kPublishedC, 0.3), 40).Draft(), 40);
}

TEST(SvipPolicy, ReadsTheEntropyNotTheToken) {
  const auto policy = MakeSvipPolicy(kPublishedC, 0.3);
  EXPECT_FALSE(policy->looks_at_token());
  EXPECT_EQ(policy->needs(), RowNeeds{.entropy = true});
}

}  // namespace
}  // namespace nacre::speculation
