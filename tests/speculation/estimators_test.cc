#include "speculation/estimators.h"

#include <cstddef>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

TEST(AcceptanceEstimator, BeginsWithItsPrior) {
  EXPECT_DOUBLE_EQ(AcceptanceEstimator().alpha(), 0.7);
  EXPECT_DOUBLE_EQ(AcceptanceEstimator(0.3).alpha(), 0.3);
}

TEST(AcceptanceEstimator, WeighsThePriorAsFourComparisons) {
  AcceptanceEstimator estimator(0.5);
  estimator.Add(4, 4);
  EXPECT_DOUBLE_EQ(estimator.alpha(), 6.0 / 8.0);
  estimator.Add(0, 0);
  EXPECT_DOUBLE_EQ(estimator.alpha(), 6.0 / 8.0);
}

TEST(AcceptanceEstimator, ForgetsWhatIsLongAgo) {
  AcceptanceEstimator estimator(0.5);
  for (int i = 0; i < 1000; ++i) estimator.Add(3, 3);
  EXPECT_GT(estimator.alpha(), 0.999);
  for (int i = 0; i < 64; ++i) estimator.Add(1, 0);
  EXPECT_NEAR(estimator.alpha(), 0.37, 0.02);  // (1 - 1/65)^64
  for (int i = 0; i < 1000; ++i) estimator.Add(1, 0);
  EXPECT_LT(estimator.alpha(), 0.001);
  EXPECT_GT(estimator.alpha(), 0.0);
}

TEST(AcceptanceEstimator, OneLargeBatchLeavesItsOwnRate) {
  AcceptanceEstimator estimator(0.5);
  estimator.Add(100000, 25000);
  EXPECT_NEAR(estimator.alpha(), 0.25, 0.001);
}

TEST(StepTimeCurve, IsOneBeforeAnyMeasurement) {
  StepTimeCurve curve;
  EXPECT_TRUE(curve.empty());
  EXPECT_EQ(curve.At(5), 1.0);
}

TEST(StepTimeCurve, IgnoresWhatCannotBe) {
  StepTimeCurve curve;
  curve.Add(0, 100);
  curve.Add(-1, 100);
  curve.Add(StepTimeCurve::kMaxRows + 1, 100);
  curve.Add(1, 0);
  curve.Add(1, -5);
  EXPECT_TRUE(curve.empty());
}

TEST(StepTimeCurve, IsFlatBeforeAndStraightBetween) {
  StepTimeCurve curve;
  curve.Add(4, 1000);
  EXPECT_EQ(curve.At(1), 1000.0);
  EXPECT_EQ(curve.At(4), 1000.0);
  curve.Add(8, 2000);
  EXPECT_EQ(curve.At(-3), 1000.0);
  EXPECT_EQ(curve.At(4), 1000.0);
  EXPECT_EQ(curve.At(5), 1250.0);
  EXPECT_EQ(curve.At(7), 1750.0);
  EXPECT_EQ(curve.At(8), 2000.0);
}

// However far its neighbours are.
TEST(StepTimeCurve, EachLineIsThatOfTheNearestMeasuredRows) {
  const std::vector<int> known = {1, 2, 9, 10, 17, 26, 64, 72, 300, 512};
  const auto time_ns = [](int rows) {
    return 1000 + 10 * rows + 50 * (rows % 3);
  };
  StepTimeCurve curve;
  for (const int rows : known) curve.Add(rows, time_ns(rows));
  for (size_t i = 0; i + 1 < known.size(); ++i) {
    const int from = known[i], to = known[i + 1];
    for (int rows = from; rows <= to; ++rows) {
      const double share = static_cast<double>(rows - from) / (to - from);
      EXPECT_NEAR(curve.At(rows),
                  time_ns(from) + share * (time_ns(to) - time_ns(from)), 1e-6)
          << rows;
    }
  }
}

TEST(StepTimeCurve, GoesOnBehindTheLargestStep) {
  StepTimeCurve curve;
  curve.Add(4, 1000);
  curve.Add(8, 2000);
  EXPECT_EQ(curve.At(9), 2250.0);
  EXPECT_EQ(curve.At(12), 3000.0);
  EXPECT_EQ(curve.At(StepTimeCurve::kMaxRows), 2000.0 + 504 * 250.0);
  // Further than a step can be, where several must be.
  EXPECT_EQ(curve.At(1000), 2000.0 + 992 * 250.0);
  EXPECT_EQ(curve.At(std::numeric_limits<int>::max()),
            2000.0 + (std::numeric_limits<int>::max() - 8.0) * 250.0);
}

TEST(StepTimeCurve, OnePointSaysNothingOfOtherRows) {
  for (const int rows : {1, 4, StepTimeCurve::kMaxRows}) {
    StepTimeCurve curve;
    curve.Add(rows, 1000);
    EXPECT_EQ(curve.At(1), 1000.0);
    EXPECT_EQ(curve.At(rows + 1), 1000.0);
    EXPECT_EQ(curve.At(std::numeric_limits<int>::max()), 1000.0);
  }
}

TEST(StepTimeCurve, NeverFallsBehindTheLargestStep) {
  StepTimeCurve curve;
  curve.Add(2, 1000);
  curve.Add(4, 3000);
  curve.Add(8, 2000);
  EXPECT_EQ(curve.At(6), 2500.0);
  EXPECT_EQ(curve.At(9), 2000.0);
  EXPECT_EQ(curve.At(1000), 2000.0);
}

TEST(StepTimeCurve, GoesOnInTheDirectionOfItsLastHalf) {
  StepTimeCurve curve;
  curve.Add(1, 6000);
  curve.Add(8, 8000);
  curve.Add(16, 16000);
  // Noise in neighbouring rows is not a direction.
  curve.Add(15, 17000);
  EXPECT_EQ(curve.At(32), 32000.0);
  curve.Add(17, 16000);
  EXPECT_NEAR(curve.At(34), 16000 + 17 * 8000.0 / 9, 1.0);
}

TEST(StepTimeCurve, NeedsNoPointInTheLowerHalf) {
  StepTimeCurve curve;
  curve.Add(10, 1000);
  curve.Add(12, 1100);
  curve.Add(14, 1400);
  EXPECT_EQ(curve.At(16), 1600.0);
}

TEST(StepTimeCurve, TakesTheLargestStep) {
  StepTimeCurve curve;
  curve.Add(StepTimeCurve::kMaxRows, 3000);
  EXPECT_EQ(curve.At(StepTimeCurve::kMaxRows), 3000.0);
}

TEST(StepTimeCurve, AConstantStaysConstant) {
  StepTimeCurve curve;
  for (int i = 0; i < 100; ++i) curve.Add(3, 777);
  EXPECT_EQ(curve.At(3), 777.0);
}

TEST(StepTimeCurve, FollowsALastingChangeAndNotOneOutlier) {
  StepTimeCurve curve;
  curve.Add(1, 1000);
  curve.Add(1, 1'000'000);  // counts as 2000
  EXPECT_DOUBLE_EQ(curve.At(1), 1100.0);
  for (int i = 0; i < 100; ++i) curve.Add(1, 500);
  EXPECT_NEAR(curve.At(1), 500.0, 1.0);
  for (int i = 0; i < 200; ++i) curve.Add(1, 5000);
  EXPECT_NEAR(curve.At(1), 5000.0, 1.0);
}

TEST(StepTimeCurve, RowsNotMeasuredFollowWhatChangesAllSteps) {
  StepTimeCurve curve;
  const int64_t quiet_ns[] = {0, 6600, 6700, 6700, 6800, 0, 0, 0, 11000};
  for (int rows : {1, 2, 3, 4, 8}) curve.Add(rows, quiet_ns[rows]);
  // Another device loads the memory: every step takes half as long again, and
  // steps of 8 rows do not occur.
  for (int step = 0; step < 300; ++step) {
    const int rows = 1 + step % 4;
    curve.Add(rows, quiet_ns[rows] * 3 / 2);
  }
  EXPECT_NEAR(curve.At(4), 6800 * 1.5, 100);
  EXPECT_NEAR(curve.At(8), 11000 * 1.5, 1000);
}

// A hiccup in the first step of its size: the others are what they were, and
// it comes to what it is.
TEST(StepTimeCurve, AFirstSampleThatIsFarOutDoesNoLastingHarm) {
  const auto truth = [](int rows) { return 1'000'000 + 20'000 * rows; };
  for (const bool in_turn : {false, true}) {
    StepTimeCurve curve;
    for (const int rows : {1, 2, 4, 8, 16}) curve.Add(rows, truth(rows));
    curve.Add(3, 10 * truth(3));
    EXPECT_LE(curve.At(3), 2.01 * truth(3));
    EXPECT_DOUBLE_EQ(curve.At(1), truth(1));
    for (int i = 0; i < 80; ++i) {
      curve.Add(3, truth(3));
      if (in_turn) curve.Add(1, truth(1));
    }
    for (const int rows : {1, 2, 3, 4, 8, 16}) {
      EXPECT_NEAR(curve.At(rows), truth(rows), 0.01 * truth(rows)) << rows;
    }
  }
}

TEST(StepTimeCurve, AFirstSampleIsBelievedAsFarAsOthersMakeItLikely) {
  StepTimeCurve curve;
  curve.Add(8, 1000);
  curve.Add(16, 3900);  // each row costs twice as much
  EXPECT_EQ(curve.At(16), 3900.0);
  curve.Add(4, 1'000'000);
  EXPECT_EQ(curve.At(4), 2000.0);
  curve.Add(32, 1'000'000);
  EXPECT_EQ(curve.At(32), 2 * (3900 + 16 * 362.5));
  // A true one that is large stays, and takes the others with it again.
  curve.Add(4, 2000);
  curve.Add(4, 4000);
  EXPECT_GT(curve.At(8), 1000.0);
}

TEST(StepTimeCurve, NoiseInSomeRowsDoesNotCarryTheOthersAway) {
  StepTimeCurve curve;
  curve.Add(1, 10000);
  curve.Add(8, 15000);
  for (int step = 0; step < 100000; ++step) {
    curve.Add(1, step % 3 == 0 ? 12000 : 9000);  // 10000 on average
  }
  EXPECT_NEAR(curve.At(8), 15000, 1500);
}

}  // namespace
}  // namespace nacre::speculation
