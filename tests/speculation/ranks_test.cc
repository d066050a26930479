#include "speculation/ranks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

TEST(RankHistogramTest, BeginsWithItsPrior) {
  const RankHistogram histogram(0.6);
  EXPECT_NEAR(histogram.alpha(), 0.6, 1e-12);
  EXPECT_EQ(histogram.Within(0), 0);
  EXPECT_NEAR(histogram.Within(kRanks), 0.6 + 0.4 * 0.86, 1e-12);
  EXPECT_NEAR(histogram.CaughtBy(1), 0.43, 1e-12);
  EXPECT_NEAR(histogram.CaughtBy(100), 0.86, 1e-12);
  EXPECT_EQ(histogram.CaughtBy(0), 0);
}

TEST(RankHistogramTest, IsThePriorOfAnother) {
  EXPECT_NEAR(RankHistogram(0.6).shares()[0], kMismatchShares[0], 1e-12);
  RankHistogram pair(0.5);
  for (int i = 0; i < 500; ++i) pair.Add(i % 2 == 0 ? 1 : 3);
  const RankHistogram next(0.8, pair.shares());
  EXPECT_NEAR(next.alpha(), 0.8, 1e-12);
  EXPECT_NEAR(next.CaughtBy(1), pair.CaughtBy(1), 1e-12);
  EXPECT_NEAR(next.CaughtBy(2), pair.CaughtBy(2), 1e-12);
  EXPECT_GT(next.CaughtBy(2), 0.95);
}

TEST(RankHistogramTest, CountsEachRankAndThePriorAsFour) {
  RankHistogram histogram(0.5);
  for (int rank = 1; rank <= kBeyond; ++rank) histogram.Add(rank);
  EXPECT_NEAR(histogram.alpha(), (2 + 1) / 13.0, 1e-12);
  EXPECT_NEAR(histogram.Within(2), (2 + 1 + 0.86 + 1) / 13.0, 1e-12);
  const double all = histogram.Within(kRanks);
  histogram.Add(0);
  histogram.Add(-3);
  histogram.Add(100);
  EXPECT_LT(histogram.Within(kRanks), all);
  EXPECT_NEAR(histogram.Within(kRanks), all * 13 / 16, 1e-12);
}

TEST(RankHistogramTest, ForgetsWhatIsLongAgo) {
  RankHistogram histogram;
  for (int i = 0; i < 2000; ++i) histogram.Add(1);
  EXPECT_GT(histogram.alpha(), 0.999);
  for (int i = 0; i < 64; ++i) histogram.Add(2);
  EXPECT_NEAR(histogram.alpha(), 0.37, 0.02);
  EXPECT_NEAR(histogram.Within(2), 1, 1e-3);
  EXPECT_GT(histogram.CaughtBy(1), 0.99);
  for (int i = 0; i < 2000; ++i) histogram.Add(kBeyond);
  EXPECT_LT(histogram.Within(kRanks), 1e-3);
  EXPECT_GT(histogram.alpha(), 0);
}

TEST(ScoreCalibrationTest, IsASoftmaxOfTheScoresTimesWhatTheyCover) {
  const ScoreCalibration calibration;
  const std::vector<float> scores = {3.0f, 2.5f, -1.0f};
  std::vector<float> log2_probabilities(3);
  calibration.Apply(scores, absl::MakeSpan(log2_probabilities));
  double sum = 0;
  for (const float log2_probability : log2_probabilities) {
    sum += std::exp2(log2_probability);
  }
  EXPECT_NEAR(sum, ScoreCalibration::kPriorWithin, 1e-6);
  EXPECT_NEAR((log2_probabilities[0] - log2_probabilities[1]) * std::log(2.0),
              0.5 / ScoreCalibration::kPriorTau, 1e-6);
}

TEST(ScoreCalibrationTest, ScoresFarApartAndASingleOneStayProbabilities) {
  ScoreCalibration calibration;
  const std::vector<float> scores = {1e30f, 0.0f, -1e30f};
  std::vector<float> log2_probabilities(3);
  calibration.Apply(scores, absl::MakeSpan(log2_probabilities));
  EXPECT_NEAR(log2_probabilities[0], std::log2(0.95), 1e-6);
  EXPECT_EQ(log2_probabilities[2], -std::numeric_limits<float>::infinity());
  for (int rank = 1; rank <= 4; ++rank) calibration.Add(scores, rank);
  EXPECT_GE(calibration.tau(), ScoreCalibration::kMinTau);
  EXPECT_LE(calibration.tau(), ScoreCalibration::kMaxTau);
  const std::vector<float> one = {2.0f};
  calibration.Add(one, 1);
  calibration.Add(one, kBeyond);
  calibration.Apply(one, absl::MakeSpan(log2_probabilities.data(), 1));
  EXPECT_NEAR(std::exp2(log2_probabilities[0]), calibration.within(), 1e-6);
}

// Targets that draw by a softmax of another tau are found out.
TEST(ScoreCalibrationTest, ScoresOutOfRangeMoveNoTau) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ScoreCalibration calibration;
  for (int rank = 1; rank <= kBeyond; ++rank) {
    calibration.Add({{1.0f, -kInfinity}}, rank);
    calibration.Add({{3e38f, -3e38f}}, rank);
  }
  EXPECT_EQ(calibration.tau(), ScoreCalibration().tau());
  std::vector<float> log2s(2);
  calibration.Apply({{1.0f, -kInfinity}}, absl::MakeSpan(log2s));
  EXPECT_TRUE(std::isfinite(log2s[0]));
  EXPECT_EQ(log2s[1], -kInfinity);
}

TEST(ScoreCalibrationTest, FindsTheTauAndTheCoverOfItsTarget) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::uniform_real_distribution<double> uniform;
  for (const double tau : {0.3, 0.6, 0.9, 1.5}) {
    for (const double within : {0.8, 0.96}) {
      ScoreCalibration calibration;
      double mean_tau = 0;
      double mean_within = 0;
      constexpr int kPositions = 6000;
      for (int position = 0; position < kPositions; ++position) {
        std::vector<float> scores(kRanks);
        for (float& score : scores) score = normal(random);
        std::sort(scores.rbegin(), scores.rend());
        int rank = kBeyond;
        if (uniform(random) < within) {
          double sum = 0;
          for (const float score : scores) sum += std::exp(score / tau);
          double left = uniform(random) * sum;
          rank = 1;
          while (rank < kRanks && left >= std::exp(scores[rank - 1] / tau)) {
            left -= std::exp(scores[rank - 1] / tau);
            ++rank;
          }
        }
        calibration.Add(scores, rank);
        if (position >= kPositions / 2) {
          mean_tau += calibration.tau() / (kPositions - kPositions / 2);
          mean_within += calibration.within() / (kPositions - kPositions / 2);
        }
      }
      EXPECT_NEAR(mean_tau, tau, 0.08 * tau);
      EXPECT_NEAR(mean_within, within, 0.02);
    }
  }
}

}  // namespace
}  // namespace nacre::speculation
