#include "speculation/gates.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "speculation/law.h"

namespace nacre::speculation {
namespace {

TEST(Gates, WithoutLatencyTheClosedLawComesOut) {
  for (const double alpha : {0.3, 0.6, 0.9}) {
    for (const int cost_ratio : {2, 5, 10}) {
      for (const int gate : {0, 1, 4}) {
        const GateInputs inputs = {alpha, 1.0 * cost_ratio, 32, 0.0};
        EXPECT_NEAR(GatedSpeedup(inputs, {gate, 0}),
                    AsyncSpeedup(alpha, cost_ratio, gate), 0.01)
            << alpha << " " << cost_ratio << " " << gate;
      }
    }
  }
}

TEST(Gates, AFullGateIsTheLawOfSd) {
  // A round trip so long that nothing is there before it is waited for, and
  // every step is one after a mismatch: alpha is low.
  const GateInputs inputs = {0.01, 4.0, 3, 0.0};
  EXPECT_NEAR(GatedSpeedup(inputs, {3, 3}), SdSpeedup(0.01, 4.0, 3), 0.01);
}

TEST(Gates, NoGateIsWiderThanTheWindow) {
  const GateInputs inputs = {0.9, 10.0, 2, 0.5};
  EXPECT_DOUBLE_EQ(GatedSpeedup(inputs, {2, 2}), GatedSpeedup(inputs, {9, 9}));
  const Gates best = BestGates(inputs);
  EXPECT_LE(best.after_mismatch, 2);
  EXPECT_LE(best.in_flow, 2);
  EXPECT_EQ(BestGates({0.9, 10.0, 0, 0.5}), Gates());
}

TEST(Gates, ARoundTripIsWorthAWaitInFlow) {
  // The step after a mismatch hides the round trip; the next finds one token,
  // and others are under way.
  const GateInputs inputs = {0.5, 8.5, 16, 0.8};
  const Gates best = BestGates(inputs);
  EXPECT_GT(best.in_flow, 0);
  EXPECT_GT(GatedSpeedup(inputs, best), 1.02 * GatedSpeedup(inputs, Gates()));
}

TEST(Gates, AreNearlyTheBestOfAllPairs) {
  for (const double alpha : {0.3, 0.5, 0.7, 0.9}) {
    for (const double cost_ratio : {1.0, 2.5, 6.5, 12.0}) {
      for (const double round_trip : {0.0, 0.2, 0.8}) {
        const GateInputs inputs = {alpha, cost_ratio, 12, round_trip};
        double best = 0.0;
        for (int after = 0; after <= 12; ++after) {
          for (int flow = 0; flow <= 12; ++flow) {
            best = std::max(best, GatedSpeedup(inputs, {after, flow}));
          }
        }
        EXPECT_GE(GatedSpeedup(inputs, BestGates(inputs)), 0.985 * best)
            << alpha << " " << cost_ratio << " " << round_trip;
      }
    }
  }
}

TEST(Gates, AGateThatGainsNextToNothingIsNotTaken) {
  for (double alpha = 0.9; alpha > 0.5; alpha -= 0.001) {
    const GateInputs inputs = {alpha, 5.5, 16, 0.02};
    const double ungated = GatedSpeedup(inputs, Gates());
    const Gates best = BestGates(inputs);
    if (best == Gates()) {
      EXPECT_LE(GatedSpeedup(inputs, {1, 0}), 1.005 * ungated) << alpha;
    } else {
      EXPECT_GE(GatedSpeedup(inputs, best), 1.004 * ungated) << alpha;
    }
  }
}

TEST(Gates, AGateWorthLessThanHalfAPercentIsNone) {
  const GateInputs cases[] = {{0.55, 3.5, 16, 0.0},
                              {0.6, 3.5, 16, 0.02},
                              {0.9, 3.5, 16, 0.0},
                              {0.9, 3.5, 16, 0.1}};
  for (const GateInputs& inputs : cases) {
    const double ungated = GatedSpeedup(inputs, Gates());
    const double gated = GatedSpeedup(inputs, {1, 0});
    EXPECT_GT(gated, ungated) << inputs.alpha;
    EXPECT_LT(gated, 1.005 * ungated) << inputs.alpha;
    EXPECT_EQ(BestGates(inputs), Gates()) << inputs.alpha;
  }
}

TEST(Gates, NonsenseIsClamped) {
  const double low = GatedSpeedup({-1.0, 5.0, 8, 0.0}, Gates());
  EXPECT_DOUBLE_EQ(low, GatedSpeedup({0.01, 5.0, 8, 0.0}, Gates()));
  EXPECT_GT(GatedSpeedup({2.0, 5.0, 8, 0.0}, Gates()), low);
}

}  // namespace
}  // namespace nacre::speculation
