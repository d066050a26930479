#include "draft_worker/ratio_draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"
#include "tests/testing/chi_square.h"

namespace nacre::draft_worker {
namespace {

using speculation::DraftDistribution;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RatioDrawTest, KeepsTheLikeliestTokens) {
  const DraftDistribution few =
      LikeliestTokens({{2, 5, 9}, {0.5f, 1.0f, 0.25f}});
  EXPECT_THAT(few.token_ids, ElementsAre(5, 2, 9));
  EXPECT_THAT(few.weights, ElementsAre(1.0f, 0.5f, 0.25f));

  model::TokenWeights many;
  for (int id = 0; id < 200; ++id) {
    many.token_ids.push_back(id);
    // Pairs of equal weight, the likeliest last.
    many.weights.push_back(1.0f / static_cast<float>(1 + (199 - id) / 2));
  }
  const DraftDistribution kept = LikeliestTokens(many);
  ASSERT_EQ(kept.token_ids.size(), 64u);
  EXPECT_EQ(kept.token_ids[0], 198);
  EXPECT_EQ(kept.token_ids[1], 199);
  EXPECT_EQ(*std::min_element(kept.token_ids.begin(), kept.token_ids.end()),
            136);

  // Of equal ones at the cut the lower ids.
  std::fill(many.weights.begin(), many.weights.end(), 1.0f);
  const DraftDistribution equal = LikeliestTokens(many);
  EXPECT_EQ(equal.token_ids.front(), 0);
  EXPECT_EQ(equal.token_ids.back(), 63);
}

TEST(RatioDrawTest, DrawsFromWhatItSays) {
  SamplingParams params;
  params.temperature = 0.9f;
  params.top_k = 6;
  std::vector<float> logits;
  for (int id = 0; id < 16; ++id) {
    logits.push_back(static_cast<float>(id % 7) * 0.4f);
  }
  model::Sampler sampler(params, 16);
  RatioDraw draw(5);
  std::vector<int> counts(16, 0);
  DraftDistribution law;
  for (int position = 0; position < 20000; ++position) {
    ++counts[static_cast<size_t>(
        draw.Draw(sampler, logits, position, model::TokenHistory(0), &law))];
  }
  ASSERT_EQ(law.token_ids.size(), 6u);
  std::vector<double> exact(16, 0.0);
  double sum = 0;
  for (const float weight : law.weights) sum += weight;
  for (size_t i = 0; i < law.token_ids.size(); ++i) {
    exact[static_cast<size_t>(law.token_ids[i])] = law.weights[i] / sum;
  }
  EXPECT_LT(testing::ChiSquareDeviation(exact, counts),
            testing::kCriticalDeviation);
}

OpenDraft RatioOpen(int lead) {
  OpenDraft open = MakeOpen(1, {3, 4, 5}, lead);
  open.sampling.temperature = 1.0f;
  open.sampling.seed = 12;
  open.verification = speculation::Verification::kRatio;
  return open;
}

TEST(RatioDrawTest, TheEngineSendsWhatItDrewFrom) {
  DraftFixture fixture;
  fixture.Open(RatioOpen(6));
  fixture.Drain();
  std::vector<int32_t> tokens = {3, 4, 5};
  int drafted = 0;
  for (const speculation::Tail& tail : fixture.tails[1]) {
    ASSERT_EQ(tail.distributions.size(), tail.token_ids.size());
    for (size_t i = 0; i < tail.token_ids.size(); ++i) {
      const std::vector<float> logits = fixture.model.Logits(tokens);
      const DraftDistribution& law = tail.distributions[i];
      ASSERT_EQ(law.token_ids.size(), logits.size());
      const int32_t best = static_cast<int32_t>(
          std::max_element(logits.begin(), logits.end()) - logits.begin());
      EXPECT_EQ(law.token_ids[0], best);
      EXPECT_EQ(law.weights[0], 1.0f);
      EXPECT_TRUE(std::count(law.token_ids.begin(), law.token_ids.end(),
                             tail.token_ids[i]) == 1);
      tokens.push_back(tail.token_ids[i]);
      ++drafted;
    }
  }
  EXPECT_EQ(drafted, 6);
}

// The numbers are not those of exact match, which the target's own draws use.
TEST(RatioDrawTest, UsesNumbersOfItsOwn) {
  std::set<std::vector<int32_t>> streams;
  for (const bool ratio : {false, true}) {
    DraftFixture fixture;
    OpenDraft open = RatioOpen(30);
    if (!ratio) open.verification = speculation::Verification::kExact;
    fixture.Open(open);
    fixture.Drain();
    streams.insert(fixture.TakeDrafted(1));
  }
  EXPECT_EQ(streams.size(), 2u);
}

TEST(RatioDrawTest, RefusesPoliciesThatLookAtTheToken) {
  DraftFixture fixture;
  OpenDraft open = RatioOpen(4);
  open.policy = "confidence";
  fixture.Open(open);
  fixture.Drain();
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(fixture.failures[1].message()),
              HasSubstr("confidence looks at the tokens drawn"));
  // At temperature 0 there is nothing to bias.
  open.session_id = 2;
  open.sampling.temperature = 0.0f;
  fixture.Open(open);
  fixture.Drain();
  EXPECT_EQ(fixture.failures.count(2), 0u);
  EXPECT_FALSE(fixture.tails[2].empty());
}

}  // namespace
}  // namespace nacre::draft_worker
