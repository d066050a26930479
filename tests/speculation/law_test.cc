#include "speculation/law.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

// Goldens computed apart from this code, by summing the same processes; here
// cost_ratio = T_target / T_draft.
struct Golden {
  double alpha;
  double cost_ratio;
  double best_sd;
  double pearl;
  double async;
  int gate;
};
constexpr Golden kGoldens[] = {
    {0.70, 20, 2.35, 1.96, 2.44, 5}, {0.80, 20, 3.09, 2.76, 3.31, 6},
    {0.90, 20, 4.67, 4.94, 5.43, 7}, {0.70, 10, 1.98, 1.94, 2.15, 3},
    {0.80, 10, 2.47, 2.64, 2.84, 3}, {0.90, 10, 3.43, 4.20, 4.34, 4},
    {0.80, 5, 1.87, 2.28, 2.32, 1},  {0.80, 50, 3.82, 2.78, 3.89, 10}};

TEST(Law, AgreesWithTheGoldenTable) {
  for (const Golden& golden : kGoldens) {
    const double a = golden.alpha;
    const double c = golden.cost_ratio;
    SCOPED_TRACE(testing::Message() << "alpha " << a << ", c " << c);
    EXPECT_NEAR(SdSpeedup(a, c, BestSdWindow(a, c, 64)), golden.best_sd,
                0.0051);
    EXPECT_NEAR(PearlSpeedup(a, c, PearlWindow(c, 64)), golden.pearl, 0.0051);
    EXPECT_NEAR(AsyncSpeedup(a, c, golden.gate), golden.async, 0.0051);
    EXPECT_EQ(BestGate(a, c, 64), golden.gate);
  }
}

TEST(Law, ExpectedCommittedIsTheGeometricSum) {
  EXPECT_DOUBLE_EQ(ExpectedCommitted(0.5, 0), 1.0);
  EXPECT_DOUBLE_EQ(ExpectedCommitted(0.5, 3), 1.0 + 0.5 + 0.25 + 0.125);
  // The limit of many tokens is 1 / (1 - alpha), not 1 / (1 - alpha) + 1.
  EXPECT_NEAR(ExpectedCommitted(0.9, 1000), 10.0, 1e-9);
}

TEST(Law, AlphaIsClamped) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ClampAlpha(0.5), 0.5);
  for (const double low : {nan, -1.0, 0.0, 0.01}) {
    EXPECT_EQ(ClampAlpha(low), 0.01);
  }
  for (const double high :
       {0.99, 1.0, 7.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(ClampAlpha(high), 0.99);
  }
  for (const double alpha : {nan, -1.0, 0.0, 1.0, 2.0}) {
    EXPECT_TRUE(std::isfinite(SdSpeedup(alpha, 5, 4)));
    EXPECT_TRUE(std::isfinite(PearlSpeedup(alpha, 5, 5)));
    EXPECT_TRUE(std::isfinite(AsyncSpeedup(alpha, 5, 2)));
    EXPECT_GE(BestGate(alpha, 5, 16), 0);
    EXPECT_LE(BestGate(alpha, 5, 16), 16);
    EXPECT_GE(BestSdWindow(alpha, 5, 16), 1);
  }
}

TEST(Law, PearlPaysForAWindowThatTheDraftCannotFill) {
  EXPECT_NEAR(PearlSpeedup(0.8, 5, 10), PearlSpeedup(0.8, 10, 10) / 2, 1e-12);
  // With the whole window accepted: one target step for gamma tokens.
  EXPECT_NEAR(PearlSpeedup(0.99, 4, 4), 4.0, 0.2);
}

TEST(Law, PearlWindowIsTheRoundedCostRatio) {
  EXPECT_EQ(PearlWindow(0.1, 16), 1);
  EXPECT_EQ(PearlWindow(4.4, 16), 4);
  EXPECT_EQ(PearlWindow(4.6, 16), 5);
  EXPECT_EQ(PearlWindow(1000.0, 16), 16);
  EXPECT_EQ(PearlWindow(1e300, 16), 16);
}

TEST(Law, BestSdWindowBeatsItsNeighbours) {
  for (const double alpha : {0.1, 0.5, 0.8, 0.95}) {
    for (const double c : {0.5, 2.0, 7.3, 30.0}) {
      const int best = BestSdWindow(alpha, c, 32);
      for (int window = 1; window <= 32; ++window) {
        EXPECT_GE(SdSpeedup(alpha, c, best), SdSpeedup(alpha, c, window));
      }
    }
  }
  EXPECT_EQ(BestSdWindow(0.99, 1000, 8), 8);
}

TEST(Law, BestGateBeatsEveryOther) {
  for (const double alpha : {0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99}) {
    for (const double c : {0.5, 1.0, 2.5, 5.0, 10.0, 40.0}) {
      for (const double round_trip : {0.0, 0.1, 0.5}) {
        const double best = AsyncSpeedup(
            alpha, c, BestGate(alpha, c, 64, round_trip), round_trip);
        for (int gate = 0; gate <= 64; ++gate) {
          EXPECT_GE(best * (1.0 + 1e-12),
                    AsyncSpeedup(alpha, c, gate, round_trip))
              << "alpha " << alpha << " c " << c << " gate " << gate;
        }
      }
    }
  }
}

TEST(Law, BestGateStaysWithinItsLimit) {
  EXPECT_EQ(BestGate(0.8, 50, 4), 4);
  EXPECT_EQ(BestGate(0.8, 50, 0), 0);
  EXPECT_EQ(BestGate(0.8, 1e-3, 16), 0);
}

TEST(Law, ALongRoundTripIsNotWaitedFor) {
  EXPECT_EQ(BestGate(0.8, 5, 16, 0.0), 1);
  EXPECT_EQ(BestGate(0.8, 5, 16, 0.2), 0);
}

TEST(Law, AsyncWithoutAGateIsPearlAtItsOptimum) {
  for (const double alpha : {0.3, 0.7, 0.9}) {
    EXPECT_NEAR(AsyncSpeedup(alpha, 6, 0), PearlSpeedup(alpha, 6, 6), 1e-9);
  }
}

TEST(Law, BestWindowTakesAllOnAFlatCurve) {
  EXPECT_EQ(BestWindow(0.8, 16, [](int) { return 5.0; }), 16);
}

TEST(Law, BestWindowTakesNoneWhereEachRowCostsAStep) {
  EXPECT_EQ(BestWindow(0.8, 16, [](int rows) { return 1.0 * rows; }), 0);
}

TEST(Law, AnOverlappedStepCommitsWhatPearlDoes) {
  for (const double alpha : {0.3, 0.7, 0.9}) {
    EXPECT_NEAR(OverlappedCommitted(alpha, 0), 1.0, 1e-9);
    EXPECT_NEAR(OverlappedCommitted(alpha, 5), PearlSpeedup(alpha, 6, 6), 1e-9);
  }
}

TEST(Law, OverlappedRowsAreCountedOverFlowAndFirstSteps) {
  EXPECT_NEAR(OverlappedRows(0.5, 0), 1.0, 1e-9);
  // From one mismatch to the next: a first step of one row, then, half of the
  // time, 1 / (1 - 1/4) steps of two.
  EXPECT_NEAR(OverlappedRows(0.5, 1), 1.0 + (2.0 / 3.0) / (5.0 / 3.0), 1e-9);
  EXPECT_NEAR(OverlappedRows(0.99, 4), 5.0, 0.25);
  EXPECT_NEAR(OverlappedRows(0.01, 4), 1.0, 0.05);
}

TEST(Law, BestWindowWeighsRowsAgainstAcceptance) {
  // One more row costs a tenth of a step: worth it while alpha^m pays.
  const auto step_time = [](int rows) { return 1.0 + 0.1 * (rows - 1); };
  const int low = BestWindow(0.5, 32, step_time);
  const int high = BestWindow(0.9, 32, step_time);
  EXPECT_EQ(low, 2);
  EXPECT_EQ(high, 10);
  // A step in the curve, as kernels have them: nothing beyond 8 rows pays.
  EXPECT_EQ(BestWindow(0.8, 32, [](int rows) { return rows <= 8 ? 1 : 2; }), 7);
}

// Values of an event simulation (20,000 tokens, messages without a way): 2.48,
// 2.84 and 3.36 tokens a target step.
TEST(LawTest, BranchesSaveTheWaitAfterAMismatch) {
  EXPECT_NEAR(BranchSpeedup(0.75, 5, 0.45, BestGate(0.75, 5, 32)), 2.48, 0.05);
  EXPECT_NEAR(BranchSpeedup(0.75, 5, 0.74, BestGate(0.75, 5, 32)), 2.84, 0.06);
  EXPECT_NEAR(BranchSpeedup(0.75, 10, 0.74, BestGate(0.75, 10, 32)), 3.36,
              0.06);
  for (const double alpha : {0.05, 0.5, 0.9}) {
    for (const int gate : {0, 2}) {
      EXPECT_DOUBLE_EQ(BranchSpeedup(alpha, 5, 0, gate, 0.1),
                       AsyncSpeedup(alpha, 5, gate, 0.1));
    }
  }
}

TEST(LawTest, MoreBranchesCatchMore) {
  EXPECT_EQ(CaughtByBranches(0, 0.69), 0.0);
  EXPECT_DOUBLE_EQ(CaughtByBranches(1, 0.69), 0.25);
  EXPECT_DOUBLE_EQ(CaughtByBranches(9, 0.69), 0.75);
  // A draft whose next candidates are no better than its first.
  EXPECT_NEAR(CaughtByBranches(9, 0.1), 0.11, 0.01);
  EXPECT_LE(CaughtByBranches(64, 1.0), 0.95);
}

}  // namespace
}  // namespace nacre::speculation
