#include "model/probability_mass.h"

#include <cmath>
#include <vector>

#include "common/deterministic_math.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/model/random_rows.h"

namespace nacre::model {
namespace {

using ProbabilityMassTest = kernels::EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, ProbabilityMassTest,
                         ::testing::ValuesIn(kernels::SupportedSimdTargets()),
                         kernels::SimdTargetName);

// The definition.
int32_t MassOf(float difference) {
  return static_cast<int32_t>(DeterministicExp(difference) * kMassOne);
}

TEST_P(ProbabilityMassTest, MassesAreThoseOfTheDeterministicExponential) {
  const float best = 5.0f;
  std::vector<float> values = {5.0f,    -kInfinity, 4.9999995f, -82.0f,
                               -81.99f, -16.0f,     -15.7f,     -3e38f};
  for (int i = 0; i < 40000; ++i) {
    values.push_back(best - 0.00055f * static_cast<float>(i));
  }
  for (int count : {1, 7, 64, 100, static_cast<int>(values.size())}) {
    std::vector<float> some(values.begin(), values.begin() + count);
    some.resize(some.size() + kSlack, 1e9f);
    std::vector<int32_t> masses(some.size());
    const int64_t sum = Masses(some.data(), count, best, masses.data());
    int64_t expected = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      ASSERT_EQ(masses[i], MassOf(some[i] - best)) << some[i];
      expected += masses[i];
      if (some[i] - best < kNegligibleDifference) {
        ASSERT_EQ(masses[i], 0) << some[i];
      }
    }
    EXPECT_EQ(sum, expected);
  }
  EXPECT_EQ(MassOf(0.0f), 1 << 30);
}

TEST_P(ProbabilityMassTest, TheTotalIsExactAndTheEstimateBoundsIt) {
  std::mt19937 rng(1);
  int bounded = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int count = Pick(rng, {1, 63, 64, 200, 1023, 5000});
    const std::vector<float> logits =
        trial % 3 == 0 ? HardLogits(&rng, count) : RandomLogits(&rng, count);
    const float temperature = Pick(rng, {1.0f, 1.0f, 0.3f, 1.7f, 50.0f});
    std::vector<float> maxima(logits.size() / kGroupTokens + 1 + kSlack);
    const double estimate = FindMaximaAndEstimateSum(
        logits.data(), count, temperature, maxima.data());
    const LogitRow row = {logits.data(), maxima.data(), count, temperature};
    std::vector<float> plain_maxima(maxima.size());
    FindMaxima(logits.data(), count, AllGroups(row), plain_maxima.data());
    for (int g = 0; g < NumGroups(count); ++g) {
      ASSERT_EQ(maxima[g], plain_maxima[g]);
    }
    ScaleMaxima(temperature, AllGroups(row), maxima.data());
    const float best = Largest(maxima.data(), NumGroups(count));
    if (best == -kInfinity) {
      EXPECT_EQ(estimate, 0.0);
      continue;
    }
    int64_t total = 0;
    double sum = 0;
    for (const float logit : logits) {
      if (std::isnan(logit)) continue;
      total += MassOf(logit / temperature - best);
      sum += std::exp(double{logit} / temperature - best);
    }
    EXPECT_EQ(TotalMass(row, best), total) << trial;
    if (std::abs(best) > 1000) continue;
    EXPECT_NEAR(estimate, sum, sum * (1.6e-5 + std::abs(best) * 0x1p-22));
    const MassBounds bounds = BoundsOfTotalMass(estimate, best, count);
    EXPECT_LE(bounds.lower, static_cast<double>(total)) << trial;
    EXPECT_GE(bounds.upper, static_cast<double>(total)) << trial;
    // Otherwise they would be of no use.
    EXPECT_LT(bounds.upper - bounds.lower, 6e-4 * static_cast<double>(total));
    ++bounded;
  }
  EXPECT_GT(bounded, 200);
}

// What cannot be estimated is never mistaken for an estimate.
TEST_P(ProbabilityMassTest, ATemperatureWithoutAnInverseGivesNoEstimate) {
  const std::vector<float> logits = {3e-38f, 2e-38f, 1e-38f};
  std::vector<float> maxima(1 + kSlack);
  EXPECT_LT(FindMaximaAndEstimateSum(logits.data(), 3, 1e-39f, maxima.data()),
            0.99);
}

}  // namespace
}  // namespace nacre::model
