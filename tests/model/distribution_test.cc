#include "model/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "simulation/random.h"

namespace nacre::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(size_t count, double spread, uint64_t seed) {
  simulation::Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = static_cast<float>(spread * (random.Unit() - 0.5));
  }
  return logits;
}

double ReferenceEntropy(const std::vector<float>& logits) {
  const auto sums = kernels::ReferenceSoftmaxSums(logits.data(), logits.size());
  double entropy = 0.0;
  for (const float logit : logits) {
    const double p = std::exp(double{logit} - sums.best) / sums.total;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  return entropy;
}

std::vector<float> Top(const std::vector<float>& logits, size_t count) {
  std::vector<float> top(count, -1.0f);
  Distribution(logits).FillTop(absl::MakeSpan(top));
  return top;
}

TEST(Distribution, UniformOverFour) {
  const std::vector<float> logits(4, 2.5f);
  const Distribution distribution(logits);
  EXPECT_NEAR(distribution.entropy(), 1.386294, 1e-6);
  EXPECT_NEAR(distribution.Probability(3), 0.25, 1e-9);
}

TEST(Distribution, OneCertainTokenHasNoEntropy) {
  const std::vector<float> logits = {-kInfinity, 3.0f, -1000.0f, -kInfinity};
  const Distribution distribution(logits);
  EXPECT_EQ(distribution.entropy(), 0.0);
  EXPECT_EQ(distribution.Probability(1), 1.0);
  EXPECT_EQ(distribution.Probability(0), 0.0);
  EXPECT_EQ(distribution.Probability(2), 0.0);
}

// Awkward sizes: below, at and beyond whole vectors and chunks.
TEST(Distribution, AgreesWithTheDefinitionInDouble) {
  for (const size_t count : {1u, 2u, 3u, 15u, 16u, 17u, 31u, 33u, 1000u, 4095u,
                             4096u, 4097u, 32000u, 151936u}) {
    for (const double spread : {0.1, 8.0, 60.0, 500.0}) {
      const std::vector<float> logits = RandomLogits(count, spread, count);
      const Distribution distribution(logits);
      EXPECT_NEAR(distribution.entropy(), ReferenceEntropy(logits),
                  2e-6 * (1.0 + std::log(count)))
          << count << " " << spread;
      const auto sums =
          kernels::ReferenceSoftmaxSums(logits.data(), logits.size());
      const double expected =
          std::exp(double{logits[0]} - sums.best) / sums.total;
      EXPECT_NEAR(distribution.Probability(0), expected, 2e-6 * expected)
          << count << " " << spread;
    }
  }
}

TEST(Distribution, AConstantAddedToAllLogitsChangesNothing) {
  std::vector<float> logits = RandomLogits(777, 8.0, 3);
  const double entropy = Distribution(logits).entropy();
  for (float& logit : logits) logit += 16.0f;
  EXPECT_NEAR(Distribution(logits).entropy(), entropy, 2e-5);
}

TEST(Distribution, NanIsNeverLikely) {
  std::vector<float> logits = {1.0f, kNaN, 1.0f, kNaN, -kInfinity};
  const Distribution distribution(logits);
  EXPECT_NEAR(distribution.entropy(), std::log(2.0), 1e-6);
  EXPECT_EQ(distribution.Probability(1), 0.0);
  EXPECT_EQ(Top(logits, 4), (std::vector<float>{0.5f, 0.5f, 0.0f, 0.0f}));
  logits.resize(100, kNaN);
  EXPECT_NEAR(Distribution(logits).entropy(), std::log(2.0), 1e-6);
}

TEST(Distribution, WithoutAFiniteBestAllIdsAreAlike) {
  for (const float value : {kNaN, -kInfinity, kInfinity}) {
    const std::vector<float> logits(5, value);
    EXPECT_NEAR(Distribution(logits).entropy(), std::log(5.0), 1e-9);
    EXPECT_NEAR(Distribution(logits).Probability(2), 0.2, 1e-9);
    EXPECT_EQ(Top(logits, 7),
              (std::vector<float>{0.2f, 0.2f, 0.2f, 0.2f, 0.2f, 0, 0}));
  }
}

TEST(Distribution, TheTopIsSortedAndEndsWithTheVocabulary) {
  for (const size_t count : {1u, 7u, 10u, 11u, 5000u}) {
    const std::vector<float> logits = RandomLogits(count, 12.0, 2 * count);
    std::vector<float> sorted = logits;
    std::sort(sorted.rbegin(), sorted.rend());
    const auto sums =
        kernels::ReferenceSoftmaxSums(logits.data(), logits.size());
    const std::vector<float> top = Top(logits, 10);
    for (size_t i = 0; i < top.size(); ++i) {
      const double expected =
          i < count ? std::exp(double{sorted[i]} - sums.best) / sums.total : 0;
      EXPECT_NEAR(top[i], expected, 3e-6 * expected) << count << " " << i;
    }
  }
  EXPECT_EQ(Top({1.0f, 1.0f, 1.0f}, 2).size(), 2u);
  EXPECT_FLOAT_EQ(Top({1.0f, 1.0f, 1.0f}, 2)[1], 1.0f / 3.0f);
}

}  // namespace
}  // namespace nacre::model
