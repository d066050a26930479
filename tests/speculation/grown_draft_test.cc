#include "speculation/grown_draft.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;

constexpr SuffixLimits kLimits = {64, 16, 1e-3, false};
const Ids kText = {1, 2, 3};

HeadCandidates Said(const std::vector<std::pair<int32_t, float>>& candidates) {
  HeadCandidates said;
  for (const auto& [token_id, score] : candidates) {
    said.token_ids[static_cast<size_t>(said.count)] = token_id;
    said.scores[static_cast<size_t>(said.count++)] = score;
  }
  return said;
}

std::vector<int> Next(const GrownDraft& draft, int count) {
  std::vector<int> nodes;
  draft.NextToExpand(count, &nodes);
  return nodes;
}

TEST(GrownDraftTest, ExpandsTheLikeliestNodes) {
  HeadCalibrations calibrations(3);
  GrownDraft draft(&calibrations);
  draft.Begin(kText, kLimits);
  EXPECT_EQ(Next(draft, 4), std::vector<int>({GrownDraft::kRoot}));
  draft.Expand(GrownDraft::kRoot, Said({{10, 5}, {11, 4}, {12, 0}}));
  EXPECT_EQ(Next(draft, 2), std::vector<int>({0, 1}));
  draft.Expand(0, Said({{20, 5}, {21, 4.9f}}));
  draft.Expand(1, Said({{20, 5}, {22, 3}}));
  ASSERT_FALSE(Next(draft, 8).empty());
  for (const int node : Next(draft, 8)) {
    EXPECT_TRUE(node >= 2) << "0 and 1 are expanded";
  }
  const int best = Next(draft, 1)[0];
  EXPECT_EQ(draft.Path(best), Ids({10, 20}));
  EXPECT_EQ(draft.depth(best), 2);
  draft.Expand(best, Said({{30, 1}}));
  for (const int node : Next(draft, 99)) {
    EXPECT_LT(draft.depth(node), 3) << "nothing is below the third level";
  }

  const auto nodes = draft.Propose(kText, kLimits);
  EXPECT_EQ(nodes.size(), 3u + 2 + 2 + 1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_LT(nodes[i].parent, static_cast<int>(i));
    if (i > 0) {
      EXPECT_LE(nodes[i].probability, nodes[i - 1].probability);
    }
  }
  EXPECT_EQ(draft.Propose(kText, {2, 16, 0, false}).size(), 2u);
  EXPECT_TRUE(draft.Propose(Ids({1, 2, 3, 10}), kLimits).empty())
      << "it is after another text";
}

TEST(GrownDraftTest, ChainsHaveFirstCandidatesAlone) {
  HeadCalibrations calibrations(4);
  GrownDraft draft(&calibrations);
  draft.Begin(kText, {64, 2, 1e-3, true});
  draft.Expand(GrownDraft::kRoot, Said({{10, 5}, {11, 4.9f}}));
  EXPECT_EQ(Next(draft, 4), std::vector<int>({0}));
  draft.Expand(0, Said({{20, 5}, {21, 4}}));
  EXPECT_TRUE(Next(draft, 4).empty()) << "2 is as deep as it may be";
  const auto nodes = draft.Propose(kText, {64, 2, 1e-3, true});
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[1].token_id, 20);
  draft.Begin(Ids({1, 2, 3, 4}), {64, 0, 1e-3, true});
  EXPECT_TRUE(Next(draft, 4).empty());
}

TEST(GrownDraftTest, UnsoundCandidatesEndAPath) {
  HeadCalibrations calibrations(4);
  GrownDraft draft(&calibrations);
  draft.Begin(kText, kLimits);
  draft.Expand(GrownDraft::kRoot, HeadCandidates());
  EXPECT_TRUE(Next(draft, 4).empty());
  EXPECT_TRUE(draft.Propose(kText, kLimits).empty());
  draft.Begin(Ids({1, 2, 3, 4}), kLimits);
  EXPECT_EQ(calibrations[0].within(), ScoreCalibration().within());
}

// At each depth, along what came, until it leaves the tree.
TEST(GrownDraftTest, LearnsByDepth) {
  HeadCalibrations calibrations(3);
  const double prior = calibrations[0].within();
  GrownDraft draft(&calibrations);
  Ids text = kText;
  for (int i = 0; i < 40; ++i) {
    draft.Begin(text, kLimits);
    draft.Expand(GrownDraft::kRoot, Said({{10, 5}, {11, 5}}));
    draft.Expand(0, Said({{20, 5}, {21, 4}}));
    // The first level is right, the second never, so nothing is known of the
    // third.
    text.push_back(10);
    text.push_back(99);
    text.push_back(98);
  }
  draft.Propose(text, kLimits);
  EXPECT_GT(calibrations[0].within(), prior);
  EXPECT_LT(calibrations[1].within(), prior / 2);
  EXPECT_EQ(calibrations[2].within(), prior);
}

// What was not expanded teaches nothing.
TEST(GrownDraftTest, LearnsOnlyWhatItSaid) {
  HeadCalibrations calibrations(3);
  const double prior = calibrations[1].within();
  GrownDraft draft(&calibrations);
  draft.Begin(kText, kLimits);
  draft.Expand(GrownDraft::kRoot, Said({{10, 5}, {11, 5}}));
  draft.Expand(0, Said({{20, 5}}));
  draft.Begin(Ids({1, 2, 3, 11, 20}), kLimits);
  EXPECT_EQ(calibrations[1].within(), prior);
}

}  // namespace
}  // namespace nacre::speculation
