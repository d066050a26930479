#include "model/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "tests/model/random_rows.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pair;

TokenLogprobs Logprobs(const std::vector<float>& logits, int32_t token_id,
                       int num_top) {
  SamplingScratch scratch;
  return ComputeLogprobs(logits, token_id, num_top, &scratch);
}

TEST(LogprobsTest, IsTheLogarithmOfTheSoftmax) {
  // Softmax of ln 1, ln 2, ln 5 is 1/8, 2/8, 5/8; a shift changes nothing.
  for (const float shift : {0.0f, 80.0f, -3.0e4f}) {
    const std::vector<float> logits = {
        std::log(1.0f) + shift, std::log(2.0f) + shift, std::log(5.0f) + shift};
    const float tolerance = 1e-6f + std::abs(shift) * 1e-7f;
    const TokenLogprobs result = Logprobs(logits, 0, 2);
    EXPECT_EQ(result.token_id, 0);
    EXPECT_NEAR(result.logprob, std::log(1.0 / 8), tolerance);
    EXPECT_THAT(result.top,
                ElementsAre(Pair(2, FloatNear(std::log(5.0 / 8), tolerance)),
                            Pair(1, FloatNear(std::log(2.0 / 8), tolerance))));
  }
}

TEST(LogprobsTest, TiesKeepTheLowerIdAndThereAreNoMoreThanTheVocabulary) {
  const std::vector<float> logits = {0.0f, 1.0f, 1.0f, 0.0f};
  const TokenLogprobs result = Logprobs(logits, 3, 20);
  ASSERT_EQ(result.top.size(), 4u);
  EXPECT_EQ(result.top[0].first, 1);
  EXPECT_EQ(result.top[1].first, 2);
  EXPECT_EQ(result.top[2].first, 0);
  EXPECT_EQ(result.top[3].first, 3);
  EXPECT_TRUE(Logprobs(logits, 3, 0).top.empty());
}

TEST(LogprobsTest, EqualsSortingOverManyTokens) {
  std::mt19937 rng(1);
  SamplingScratch scratch;
  for (int trial = 0; trial < 300; ++trial) {
    const int count = trial % 2 == 0 ? 3000 : 700;
    const std::vector<float> logits =
        trial % 3 == 0 ? HardLogits(&rng, count) : RandomLogits(&rng, count);
    std::vector<std::pair<float, int32_t>> sorted;
    double best = -kInfinity;
    for (int32_t id = 0; id < count; ++id) {
      const float logit = logits[static_cast<size_t>(id)];
      sorted.emplace_back(std::isnan(logit) ? kInfinity : -logit, id);
      if (logit > best) best = logit;
    }
    std::sort(sorted.begin(), sorted.end());
    double sum = 0;
    for (const float logit : logits) {
      if (!std::isnan(logit)) sum += std::exp(logit - best);
    }
    const TokenLogprobs result = ComputeLogprobs(logits, 5, 20, &scratch);
    ASSERT_EQ(result.top.size(), 20u);
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(result.top[i].first, sorted[i].second) << trial << ", " << i;
      if (!std::isfinite(best) || !std::isfinite(sorted[i].first)) {
        EXPECT_EQ(result.top[i].second, -kInfinity);
        continue;
      }
      const double expected = -sorted[i].first - best - std::log(sum);
      EXPECT_NEAR(result.top[i].second, expected,
                  1e-5 + 1e-7 * std::abs(expected));
      EXPECT_LE(result.top[i].second, 0.0f);
    }
  }
}

TEST(LogprobsTest, NaNAndInfinitiesAreImpossibleTokens) {
  const std::vector<float> logits = {kNaN, 2.0f, -kInfinity};
  EXPECT_EQ(Logprobs(logits, 0, 1).logprob, -kInfinity);
  EXPECT_EQ(Logprobs(logits, 1, 1).logprob, 0.0f);
  EXPECT_EQ(Logprobs(logits, 1, 1).top[0].first, 1);
  const std::vector<float> none = {kNaN, -kInfinity};
  EXPECT_EQ(Logprobs(none, 0, 2).logprob, -kInfinity);
}

}  // namespace
}  // namespace nacre::model
