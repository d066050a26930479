#include "speculation/policies/constant.h"

#include "gtest/gtest.h"
#include "speculation/law.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

TEST(ConstantPolicy, EveryChunkHasItsLength) {
  for (const int length : {1, 2, 7}) {
    TurnTaker turns(MakeConstantPolicy(length));
    for (const int accepted : {0, length, 0}) {
      EXPECT_EQ(turns.Draft(), length);
      turns.Verify(accepted);
    }
  }
}

TEST(ConstantPolicy, ReadsNothingOfARow) {
  const auto policy = MakeConstantPolicy(3);
  EXPECT_EQ(policy->needs(), RowNeeds());
  EXPECT_FALSE(policy->looks_at_token());
}

// The lengths that optimal-static is given: c = T_draft / T_target = 0.05 in
// the terms of DISCO's improvement factor.
TEST(OptimalStatic, TheLawHasThePublishedOptima) {
  EXPECT_EQ(BestSdWindow(0.6, 20.0, 64), 4);
  EXPECT_EQ(BestSdWindow(0.8, 20.0, 64), 8);
  EXPECT_EQ(BestSdWindow(0.9, 20.0, 64), 13);
  EXPECT_NEAR(SdSpeedup(0.6, 20.0, 4), 1.921, 5e-4);
  EXPECT_NEAR(SdSpeedup(0.8, 20.0, 8), 3.092, 5e-4);
  EXPECT_NEAR(SdSpeedup(0.9, 20.0, 13), 4.674, 5e-4);
}

}  // namespace
}  // namespace nacre::speculation
