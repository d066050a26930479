#include "speculation/suffix_draft.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TextOwner kAlice = {1, 2};
constexpr TextOwner kBob = {1, 3};
constexpr SuffixLimits kLimits = {.max_nodes = 8, .max_depth = 4};

std::vector<int32_t> TokensOf(absl::Span<const SuffixNode> nodes) {
  std::vector<int32_t> ids;
  for (const SuffixNode& node : nodes) ids.push_back(node.token_id);
  return ids;
}

TEST(SuffixTrustTest, FollowsWhatIsSeenByLengthOfMatch) {
  SuffixTrust trust;
  const double before = trust.At(8);
  EXPECT_LT(trust.At(2), before) << "a longer match says more";
  for (int i = 0; i < 200; ++i) trust.Add(3, true);
  EXPECT_GT(trust.At(2), 0.95);
  EXPECT_EQ(trust.At(8), before);
  for (int i = 0; i < 200; ++i) trust.Add(2, false);
  EXPECT_LT(trust.At(3), 0.05) << "old ones count less";
  EXPECT_GE(trust.At(3), 0.01);
}

TEST(GrowSuffixTreeTest, SharesProbabilityByCount) {
  const std::vector<int32_t> a = {5, 6, 7};
  const std::vector<int32_t> b = {5, 8};
  const std::vector<int32_t> c = {9};
  const std::vector<SuffixIndex::Occurrence> occurrences = {
      {a, 2}, {b, 2}, {c, 2}};
  const SuffixTrust trust;
  std::vector<SuffixNode> nodes;
  GrowSuffixTree(occurrences, trust, kLimits, &nodes);
  ASSERT_THAT(TokensOf(nodes), ElementsAre(5, 9, 6, 8, 7));
  EXPECT_EQ(nodes[0].parent, -1);
  EXPECT_EQ(nodes[2].parent, 0);
  EXPECT_EQ(nodes[4].parent, 2);
  EXPECT_DOUBLE_EQ(nodes[0].probability, trust.At(2) * 2 / 3);
  EXPECT_DOUBLE_EQ(nodes[2].given_parent, trust.At(3) / 2);
  EXPECT_DOUBLE_EQ(nodes[2].probability,
                   nodes[0].probability * nodes[2].given_parent);
  EXPECT_DOUBLE_EQ(nodes[4].given_parent, trust.At(4)) << "one goes on";
}

TEST(GrowSuffixTreeTest, AChainIsTheLikeliestPath) {
  const std::vector<int32_t> a = {5, 6, 7};
  const std::vector<int32_t> b = {5, 8};
  const std::vector<int32_t> c = {5, 8};
  const std::vector<SuffixIndex::Occurrence> occurrences = {
      {a, 2}, {b, 2}, {c, 2}};
  SuffixLimits limits = kLimits;
  limits.is_chain = true;
  std::vector<SuffixNode> nodes;
  GrowSuffixTree(occurrences, SuffixTrust(), limits, &nodes);
  ASSERT_THAT(TokensOf(nodes), ElementsAre(5, 8));
  EXPECT_EQ(nodes[1].parent, 0);
}

TEST(GrowSuffixTreeTest, KeepsItsLimits) {
  const std::vector<int32_t> a = {5, 6, 7, 8, 9, 10};
  const std::vector<SuffixIndex::Occurrence> occurrences = {{a, 4}};
  const SuffixTrust trust;
  std::vector<SuffixNode> nodes;
  GrowSuffixTree(occurrences, trust, {.max_nodes = 8, .max_depth = 3}, &nodes);
  EXPECT_THAT(TokensOf(nodes), ElementsAre(5, 6, 7));
  GrowSuffixTree(occurrences, trust, {.max_nodes = 2, .max_depth = 9}, &nodes);
  EXPECT_THAT(TokensOf(nodes), ElementsAre(5, 6));
  GrowSuffixTree(occurrences, trust,
                 {.max_nodes = 8,
                  .max_depth = 9,
                  .least_probability = trust.At(4) * trust.At(5)},
                 &nodes);
  EXPECT_THAT(TokensOf(nodes), ElementsAre(5, 6));
  GrowSuffixTree({}, trust, kLimits, &nodes);
  EXPECT_THAT(nodes, IsEmpty());
}

TEST(NumSaidTest, FollowsThePathOfTheTokens) {
  const std::vector<SuffixNode> nodes = {{.token_id = 1},
                                         {.token_id = 2},
                                         {.token_id = 3, .parent = 1},
                                         {.token_id = 4, .parent = 0}};
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(NumSaid(nodes, Tokens{2, 3, 4}), 2);
  EXPECT_EQ(NumSaid(nodes, Tokens{1, 3}), 1) << "the other one's child";
  EXPECT_EQ(NumSaid(nodes, Tokens{1, 4}), 2);
  EXPECT_EQ(NumSaid(nodes, Tokens{3}), 0);
  EXPECT_EQ(NumSaid(nodes, Tokens{}), 0);
  EXPECT_EQ(NumSaid({}, Tokens{1}), 0);
}

TEST(SuffixDraftTest, LooksAtItsOwnText) {
  SuffixDraft draft({}, 16);
  std::vector<int32_t> text = {1, 2, 3, 4, 1, 2};
  EXPECT_THAT(TokensOf(draft.Propose(text, nullptr, kLimits)),
              ElementsAre(3, 4, 1, 2));
  text.push_back(9);
  EXPECT_THAT(draft.Propose(text, nullptr, kLimits), IsEmpty());
  text.insert(text.end(), {2, 3});
  EXPECT_THAT(TokensOf(draft.Propose(text, nullptr, kLimits)),
              ElementsAre(4, 1, 2, 9));
}

TEST(SuffixDraftTest, LooksAtRememberedTextsOfItsOwner) {
  SuffixIndex remembered(32);
  remembered.Add(kAlice, std::vector<int32_t>{7, 1, 2, 5, 6});
  const std::vector<int32_t> text = {1, 2, 3, 7, 1, 2};
  SuffixDraft alice(kAlice, 16);
  EXPECT_THAT(TokensOf(alice.Propose(text, &remembered, kLimits)),
              ElementsAre(5, 6))
      << "the longer match";
  SuffixDraft bob(kBob, 16);
  EXPECT_THAT(TokensOf(bob.Propose(text, &remembered, kLimits)),
              ElementsAre(3, 7, 1, 2));
}

TEST(SuffixDraftTest, LearnsFromWhatCameThoughNothingVerifiedIt) {
  const auto trust_after = [](int32_t next) {
    SuffixDraft draft({}, 400);
    std::vector<int32_t> text = {1, 2, 3};
    int32_t other = 10;
    for (int i = 0; i < 60; ++i) {
      text.insert(text.end(), {other++, 1, 2});
      EXPECT_THAT(draft.Propose(text, nullptr, {1, 1, 0}),
                  ::testing::SizeIs(1));
      text.push_back(next == 0 ? other++ : next);
    }
    return draft.trust().At(2);
  };
  EXPECT_GT(trust_after(3), 0.9);
  EXPECT_LT(trust_after(0), 0.1);
}

// A text that has nothing in common with itself must not draw proposals that
// are thought good: the price rule relies on it.
TEST(SuffixDraftTest, RandomTextIsNotTrusted) {
  std::mt19937 random(5);
  SuffixDraft draft({}, 4000);
  std::vector<int32_t> text;
  double expected = 0;
  constexpr int kSteps = 4000;
  for (int i = 0; i < kSteps; ++i) {
    text.push_back(static_cast<int32_t>(random() % 40));
    for (const SuffixNode& node : draft.Propose(text, nullptr, kLimits)) {
      EXPECT_LE(node.probability, 1);
      if (i >= kSteps / 2) expected += node.probability;
    }
  }
  EXPECT_LT(expected / (kSteps / 2), 0.15) << "tokens a step";
}

}  // namespace
}  // namespace nacre::speculation
