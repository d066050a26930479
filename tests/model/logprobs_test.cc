#include "model/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pair;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(LogprobsTest, IsTheLogarithmOfTheSoftmax) {
  // Softmax of ln 1, ln 2, ln 5 is 1/8, 2/8, 5/8; a shift changes nothing.
  for (const float shift : {0.0f, 80.0f, -3.0e4f}) {
    const std::vector<float> logits = {
        std::log(1.0f) + shift, std::log(2.0f) + shift, std::log(5.0f) + shift};
    const float tolerance = 1e-6f + std::abs(shift) * 1e-7f;
    const TokenLogprobs result = ComputeLogprobs(logits, 0, 2);
    EXPECT_EQ(result.token_id, 0);
    EXPECT_NEAR(result.logprob, std::log(1.0 / 8), tolerance);
    EXPECT_THAT(result.top,
                ElementsAre(Pair(2, FloatNear(std::log(5.0 / 8), tolerance)),
                            Pair(1, FloatNear(std::log(2.0 / 8), tolerance))));
  }
}

TEST(LogprobsTest, TiesKeepTheLowerIdAndThereAreNoMoreThanTheVocabulary) {
  const std::vector<float> logits = {0.0f, 1.0f, 1.0f, 0.0f};
  const TokenLogprobs result = ComputeLogprobs(logits, 3, 20);
  ASSERT_EQ(result.top.size(), 4u);
  EXPECT_EQ(result.top[0].first, 1);
  EXPECT_EQ(result.top[1].first, 2);
  EXPECT_EQ(result.top[2].first, 0);
  EXPECT_EQ(result.top[3].first, 3);
  EXPECT_TRUE(ComputeLogprobs(logits, 3, 0).top.empty());
}

TEST(LogprobsTest, NaNAndInfinitiesAreImpossibleTokens) {
  const std::vector<float> logits = {kNaN, 2.0f, -kInfinity};
  EXPECT_EQ(ComputeLogprobs(logits, 0, 1).logprob, -kInfinity);
  EXPECT_EQ(ComputeLogprobs(logits, 1, 1).logprob, 0.0f);
  EXPECT_EQ(ComputeLogprobs(logits, 1, 1).top[0].first, 1);
  const std::vector<float> none = {kNaN, -kInfinity};
  EXPECT_EQ(ComputeLogprobs(none, 0, 2).logprob, -kInfinity);
}

}  // namespace
}  // namespace nacre::model
