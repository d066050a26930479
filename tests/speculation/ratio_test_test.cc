#include "speculation/ratio_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/chi_square.h"

namespace nacre::speculation {
namespace {

using testing::ChiSquareDeviation;
using testing::kCriticalDeviation;

constexpr int kSamples = 40000;

DraftDistribution Law(std::vector<float> weights) {
  DraftDistribution law;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    law.token_ids.push_back(static_cast<int32_t>(i));
    law.weights.push_back(weights[i]);
  }
  return law;
}

std::vector<double> Probabilities(const std::vector<float>& weights) {
  double sum = 0;
  for (const float weight : weights) sum += weight;
  std::vector<double> probabilities;
  for (const float weight : weights) probabilities.push_back(weight / sum);
  return probabilities;
}

struct Case {
  const char* name;
  std::vector<float> target;  // [vocabulary], not normalised
  std::vector<float> draft;
};

std::vector<Case> Cases() {
  return {
      {"equal", {4, 3, 2, 1}, {4, 3, 2, 1}},
      {"scaled", {4, 3, 2, 1}, {0.4f, 0.3f, 0.2f, 0.1f}},
      {"reversed", {4, 3, 2, 1}, {1, 2, 3, 4}},
      {"disjoint", {5, 1, 0, 0}, {0, 0, 2, 1}},
      {"single", {3, 2, 2, 1}, {0, 0, 0, 1}},
      {"peaked target", {1000, 1, 1, 0}, {1, 1, 1, 1}},
      {"peaked draft", {1, 1, 1, 1}, {1, 1000, 0, 0}},
      {"wide", {1, 2, 1, 3, 2, 5, 1, 1}, {5, 1, 1, 0, 0, 2, 4, 0}},
  };
}

class RatioTest : public ::testing::TestWithParam<Case> {};

TEST_P(RatioTest, GivesTheTargetsLawAndAcceptsWhatTheyShare) {
  const Case& c = GetParam();
  const DraftDistribution target = Law(c.target);
  const DraftDistribution draft = Law(c.draft);
  const std::vector<double> p = Probabilities(c.target);
  const std::vector<double> q = Probabilities(c.draft);
  double shared = 0;  // 1 - total variation
  for (size_t i = 0; i < p.size(); ++i) shared += std::min(p[i], q[i]);
  std::vector<int> counts(p.size(), 0);
  std::vector<int> drafts(p.size(), 0);
  int accepted = 0;
  for (int position = 0; position < kSamples; ++position) {
    const int32_t drafted =
        DrawToken(Weighted(draft), 7, position, NoisePurpose::kDraft);
    const int32_t token =
        JudgeByRatio(Weighted(target), drafted, draft, 7, position);
    ++drafts[static_cast<size_t>(drafted)];
    ++counts[static_cast<size_t>(token)];
    if (token == drafted) ++accepted;
  }
  EXPECT_LT(ChiSquareDeviation(q, drafts), kCriticalDeviation);
  EXPECT_LT(ChiSquareDeviation(p, counts), kCriticalDeviation);
  const double deviation = std::sqrt(shared * (1 - shared) / kSamples);
  EXPECT_NEAR(static_cast<double>(accepted) / kSamples, shared,
              4 * deviation + 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Laws, RatioTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(RatioTestTest, NeverReplacesATokenByItself) {
  const DraftDistribution target = Law({4, 3, 2, 1});
  const DraftDistribution draft = Law({1, 1, 7, 1});
  const std::vector<double> p = Probabilities({4, 3, 2, 1});
  const std::vector<double> q = Probabilities({1, 1, 7, 1});
  for (int position = 0; position < 4000; ++position) {
    // Each token as if it had been drawn: only those that the draft likes too
    // well can be rejected, and nothing of their kind comes instead.
    for (int32_t drafted = 0; drafted < 4; ++drafted) {
      const int32_t token =
          JudgeByRatio(Weighted(target), drafted, draft, 3, position);
      if (token == drafted) continue;
      EXPECT_LT(p[static_cast<size_t>(drafted)],
                q[static_cast<size_t>(drafted)]);
      EXPECT_GT(p[static_cast<size_t>(token)], q[static_cast<size_t>(token)]);
    }
  }
}

// One number for the draw and the test: the law of what comes out is another.
// The test above would see it.
TEST(RatioTestTest, IsWrongWhereNumbersAreReused) {
  const DraftDistribution target = Law({4, 3, 2, 1});
  const DraftDistribution draft = Law({1, 2, 3, 4});
  std::vector<int> counts(4, 0);
  for (int position = 0; position < kSamples; ++position) {
    const int32_t drafted =
        DrawToken(Weighted(draft), 7, position, NoisePurpose::kAccept);
    ++counts[static_cast<size_t>(
        JudgeByRatio(Weighted(target), drafted, draft, 7, position))];
  }
  EXPECT_GT(ChiSquareDeviation(Probabilities({4, 3, 2, 1}), counts), 10.0);
}

TEST(RatioTestTest, AcceptsATokenThatTheTargetDrawsAlways) {
  const DraftDistribution target = Law({0, 0, 1});
  for (int position = 0; position < 100; ++position) {
    EXPECT_EQ(JudgeByRatio(Weighted(target), 2, Law({1, 1, 1}), 9, position),
              2);
    EXPECT_EQ(JudgeByRatio(Weighted(target), 0, Law({1, 1, 1}), 9, position),
              2);
  }
}

TEST(RatioTestTest, DependsOnSeedAndPositionOnly) {
  const DraftDistribution law = Law({1, 1, 1, 1, 1, 1, 1, 1});
  const auto draw = [&law](uint64_t seed, int position) {
    return DrawToken(Weighted(law), seed, position, NoisePurpose::kResidual);
  };
  EXPECT_EQ(draw(1, 2), draw(1, 2));
  int differ = 0;
  for (int position = 0; position < 100; ++position) {
    differ += draw(1, position) != draw(2, position) ? 1 : 0;
  }
  EXPECT_GT(differ, 60);
}

TEST(RatioTestTest, KnowsWhichDistributionsCanBeTestedWith) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(IsValid({{5, 2}, {0.5f, 1e-30f}}, 2));
  EXPECT_FALSE(IsValid({{5, 2}, {0.5f, 0.5f}}, 3)) << "not its token";
  EXPECT_FALSE(IsValid({{}, {}}, 3));
  EXPECT_FALSE(IsValid({{3}, {}}, 3));
  EXPECT_FALSE(IsValid({{3}, {1, 1}}, 3));
  EXPECT_FALSE(IsValid({{3, 3}, {1, 1}}, 3)) << "one id twice";
  for (const float weight : {0.0f, -1.0f, nan, infinity}) {
    EXPECT_FALSE(IsValid({{3, 4}, {1, weight}}, 3)) << weight;
  }
  DraftDistribution large;
  for (int id = 0; id <= kMaxDistribution; ++id) {
    large.token_ids.push_back(id);
    large.weights.push_back(1.0f);
  }
  EXPECT_FALSE(IsValid(large, 0));
  large.token_ids.pop_back();
  large.weights.pop_back();
  EXPECT_TRUE(IsValid(large, 0));
}

}  // namespace
}  // namespace nacre::speculation
