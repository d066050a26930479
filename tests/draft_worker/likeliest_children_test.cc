#include "draft_worker/likeliest_children.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::draft_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

TEST(LikeliestChildren, AreOrderedByProbability) {
  LikeliestChildren children;
  const std::vector<float> logits = {0, std::log(2.0f), NAN, std::log(4.0f),
                                     0, -INFINITY};
  children.Find(logits);
  EXPECT_THAT(children.children().token_ids, ElementsAre(3, 1, 0, 4));
  EXPECT_THAT(children.children().log2_probabilities,
              ElementsAre(FloatNear(-1, 1e-5f), FloatNear(-2, 1e-5f),
                          FloatNear(-3, 1e-5f), FloatNear(-3, 1e-5f)));
}

TEST(LikeliestChildren, AreAsManyAsAShapeAsksFor) {
  LikeliestChildren children;
  std::vector<float> logits(100);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>((i * 37) % 100);
  }
  children.Find(logits);
  const auto ids = children.children().token_ids;
  ASSERT_EQ(ids.size(), 16u);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(ids[i])], 99 - static_cast<float>(i));
  }
  EXPECT_GE(children.children().log2_probabilities[15], -1000);
}

TEST(LikeliestChildren, ThereIsAlwaysOne) {
  LikeliestChildren children;
  children.Find(std::vector<float>{NAN, -INFINITY});
  EXPECT_THAT(children.children().token_ids, ElementsAre(0));
  EXPECT_LE(children.children().scores[0], 0);
}

}  // namespace
}  // namespace nacre::draft_worker
