#include "speculation/head_draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;

constexpr SuffixLimits kLimits = {64, 16, 1e-3, false};

HeadCandidates Head(const std::vector<std::pair<int32_t, float>>& candidates) {
  HeadCandidates head;
  for (const auto& [token_id, score] : candidates) {
    head.token_ids[static_cast<size_t>(head.count)] = token_id;
    head.scores[static_cast<size_t>(head.count++)] = score;
  }
  return head;
}

TreeSpec Static(const std::string& list) {
  const auto spec = ParseTreeSpec("static:" + list);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(TreeSpec());
}

// The path of tokens that ends with each node.
std::vector<Ids> PathsOf(absl::Span<const SuffixNode> nodes) {
  std::vector<Ids> paths;
  for (const SuffixNode& node : nodes) {
    Ids path;
    if (node.parent >= 0) path = paths[static_cast<size_t>(node.parent)];
    path.push_back(node.token_id);
    paths.push_back(path);
  }
  return paths;
}

// What every list of nodes must be.
void ExpectOrdered(absl::Span<const SuffixNode> nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    ASSERT_LT(nodes[i].parent, static_cast<int>(i));
    const double parent =
        nodes[i].parent < 0
            ? 1
            : nodes[static_cast<size_t>(nodes[i].parent)].probability;
    EXPECT_NEAR(nodes[i].probability, parent * nodes[i].given_parent, 1e-9);
    EXPECT_LE(nodes[i].probability, parent);
    if (i > 0) {
      EXPECT_LE(nodes[i].probability, nodes[i - 1].probability);
    }
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(nodes[i].parent == nodes[j].parent &&
                   nodes[i].token_id == nodes[j].token_id)
          << "equal siblings";
    }
  }
}

const std::vector<HeadCandidates> kHeads = {
    Head({{10, 5.0f}, {11, 4.0f}, {12, 0.0f}}),
    Head({{20, 3.0f}, {21, 2.9f}}),
    Head({{30, 9.0f}, {31, 1.0f}}),
};
const HeadCalibrations kCalibrations(3);

TEST(GrowHeadTreeTest, TakesTheLikeliestPaths) {
  std::vector<SuffixNode> nodes;
  GrowHeadTree(kHeads, kCalibrations, {}, kLimits, &nodes);
  ExpectOrdered(nodes);
  std::vector<std::vector<float>> log2s;
  for (const HeadCandidates& head : kHeads) {
    const size_t count = static_cast<size_t>(head.count);
    log2s.emplace_back(count);
    ScoreCalibration().Apply({head.scores.data(), count},
                             absl::MakeSpan(log2s.back()));
  }
  // All paths, and how likely they are.
  std::map<Ids, double> all;
  for (int a = 0; a < 3; ++a) {
    const double first = std::exp2(log2s[0][a]);
    all[{10 + a}] = first;
    for (int b = 0; b < 2; ++b) {
      const double second = first * std::exp2(log2s[1][b]);
      all[{10 + a, 20 + b}] = second;
      for (int c = 0; c < 2; ++c) {
        all[{10 + a, 20 + b, 30 + c}] = second * std::exp2(log2s[2][c]);
      }
    }
  }
  const std::vector<Ids> paths = PathsOf(nodes);
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_NEAR(nodes[i].probability, all.at(paths[i]), 1e-6);
    all.erase(paths[i]);
  }
  EXPECT_GT(paths.size(), 8u);
  for (const auto& [path, probability] : all) EXPECT_LT(probability, 1e-3);
}

TEST(GrowHeadTreeTest, KeepsTheLimits) {
  std::vector<SuffixNode> all;
  GrowHeadTree(kHeads, kCalibrations, {}, kLimits, &all);
  std::vector<SuffixNode> nodes;
  SuffixLimits limits = kLimits;
  limits.max_nodes = 4;
  GrowHeadTree(kHeads, kCalibrations, {}, limits, &nodes);
  ASSERT_EQ(nodes.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(nodes[i].token_id, all[i].token_id);
  limits = kLimits;
  limits.max_depth = 2;
  GrowHeadTree(kHeads, kCalibrations, {}, limits, &nodes);
  for (const Ids& path : PathsOf(nodes)) EXPECT_LE(path.size(), 2u);
  limits.max_depth = 0;
  GrowHeadTree(kHeads, kCalibrations, {}, limits, &nodes);
  EXPECT_TRUE(nodes.empty());
  limits = kLimits;
  limits.least_probability = 0.3;
  GrowHeadTree(kHeads, kCalibrations, {}, limits, &nodes);
  ASSERT_FALSE(nodes.empty());
  EXPECT_GE(nodes.back().probability, 0.3);
  limits = kLimits;
  limits.is_chain = true;
  GrowHeadTree(kHeads, kCalibrations, {}, limits, &nodes);
  EXPECT_EQ(PathsOf(nodes).back(), (Ids{10, 20, 30}));
  EXPECT_EQ(nodes.size(), 3u);
}

TEST(GrowHeadTreeTest, AStaticListSaysWhichRanks) {
  std::vector<SuffixNode> nodes;
  // The third of head 1 is not there, so nothing is below it.
  const TreeSpec tree = Static("[[0],[1],[0,1],[1,0],[0,2],[0,2,0],[1,0,0]]");
  GrowHeadTree(kHeads, kCalibrations, tree, kLimits, &nodes);
  ExpectOrdered(nodes);
  std::vector<Ids> paths = PathsOf(nodes);
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(paths,
            (std::vector<Ids>{{10}, {10, 21}, {11}, {11, 20}, {11, 20, 30}}));
  SuffixLimits limits = kLimits;
  limits.is_chain = true;
  GrowHeadTree(kHeads, kCalibrations, tree, limits, &nodes);
  EXPECT_EQ(PathsOf(nodes), (std::vector<Ids>{{10}, {10, 21}}));
}

TEST(GrowHeadTreeTest, AHeadThatSaysNothingEndsIt) {
  std::vector<HeadCandidates> heads = kHeads;
  heads[1] = {};
  std::vector<SuffixNode> nodes;
  GrowHeadTree(heads, kCalibrations, {}, kLimits, &nodes);
  ASSERT_FALSE(nodes.empty());
  for (const SuffixNode& node : nodes) EXPECT_EQ(node.parent, -1);
  GrowHeadTree({}, kCalibrations, {}, kLimits, &nodes);
  EXPECT_TRUE(nodes.empty());
}

TEST(MergeNodesTest, EqualNodesAreOneAndTheLikelierSaysHowLikely) {
  const std::vector<SuffixNode> a = {
      {1, -1, 4, 0.5, 0.5}, {2, 0, 5, 0.4, 0.8}, {3, -1, 4, 0.2, 0.2}};
  const std::vector<SuffixNode> b = {{1, -1, 0, 0.9, 0.9},
                                     {4, 0, 0, 0.6, 2 / 3.0},
                                     {2, 0, 0, 0.1, 1 / 9.0},
                                     {7, 2, 0, 0.05, 0.5}};
  std::vector<SuffixNode> merged;
  MergeNodes(a, b, kLimits, &merged);
  ExpectOrdered(merged);
  EXPECT_EQ(PathsOf(merged),
            (std::vector<Ids>{{1}, {1, 4}, {1, 2}, {3}, {1, 2, 7}}));
  EXPECT_NEAR(merged[2].probability, 0.4, 1e-12);
  MergeNodes(a, b, {2, 16, 0, false}, &merged);
  EXPECT_EQ(PathsOf(merged), (std::vector<Ids>{{1}, {1, 4}}));
  MergeNodes(a, b, {64, 16, 0, true}, &merged);
  EXPECT_EQ(PathsOf(merged), (std::vector<Ids>{{1}, {1, 4}}));
}

TEST(MergeNodesTest, AnyTwoTrees) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto heads = [&random] {
      std::vector<HeadCandidates> result(1 + random() % 4);
      for (HeadCandidates& head : result) {
        std::vector<std::pair<int32_t, float>> candidates;
        const int count = static_cast<int>(random() % 5);
        for (int i = 0; i < count; ++i) {
          candidates.emplace_back(static_cast<int32_t>(3 * i + random() % 3),
                                  -static_cast<float>(i));
        }
        head = Head(candidates);
      }
      return result;
    };
    std::vector<SuffixNode> a;
    std::vector<SuffixNode> b;
    GrowHeadTree(heads(), HeadCalibrations(4), {}, kLimits, &a);
    GrowHeadTree(heads(), HeadCalibrations(4), {}, kLimits, &b);
    std::vector<SuffixNode> merged;
    MergeNodes(a, b, {1000, 16, 0, false}, &merged);
    ExpectOrdered(merged);
    std::map<Ids, double> wanted;
    for (const auto& nodes : {a, b}) {
      const std::vector<Ids> paths = PathsOf(nodes);
      for (size_t i = 0; i < paths.size(); ++i) {
        wanted[paths[i]] = std::max(wanted[paths[i]], nodes[i].probability);
      }
    }
    const std::vector<Ids> paths = PathsOf(merged);
    ASSERT_EQ(paths.size(), wanted.size());
    for (size_t i = 0; i < paths.size(); ++i) {
      EXPECT_NEAR(merged[i].probability, wanted.at(paths[i]), 1e-12);
    }
  }
}

TEST(HeadDraftTest, ProposesOnlyBehindTheTextThatWasLookedAt) {
  const TreeSpec best;
  HeadCalibrations calibrations(3);
  HeadDraft draft(&best, &calibrations);
  Ids text = {1, 2};
  EXPECT_TRUE(draft.Propose(text, kLimits).empty());
  draft.Look(text, kHeads);
  EXPECT_EQ(draft.Propose(text, kLimits)[0].token_id, 10);
  EXPECT_EQ(draft.Propose(text, kLimits)[0].token_id, 10) << "again";
  text.push_back(10);
  EXPECT_TRUE(draft.Propose(text, kLimits).empty());
}

// Of each head by itself, and below a wrong token nothing.
TEST(HeadDraftTest, LearnsFromWhatCameWhetherItWasVerifiedOrNot) {
  const TreeSpec best;
  HeadCalibrations calibrations(3);
  HeadDraft draft(&best, &calibrations);
  const double prior = ScoreCalibration().within();
  Ids text = {1, 2};
  draft.Look(text, kHeads);
  text.push_back(11);  // among head 0's
  draft.Look(text, kHeads);
  EXPECT_GT(calibrations[0].within(), prior);
  EXPECT_EQ(calibrations[1].within(), prior);
  const double once = calibrations[0].within();
  text.push_back(20);  // among head 1's of before, and not among head 0's
  draft.Look(text, kHeads);
  EXPECT_GT(calibrations[1].within(), prior);
  EXPECT_LT(calibrations[0].within(), once);
  EXPECT_EQ(calibrations[2].within(), prior);
  text.push_back(77);  // nowhere
  draft.Propose(text, kLimits);
  EXPECT_LT(calibrations[2].within(), prior);
  const HeadCalibrations before = calibrations;
  text.insert(text.end(), {10, 20, 30});
  draft.Propose(text, kLimits);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(calibrations[k].within(), before[k].within()) << k;
  }
}

}  // namespace
}  // namespace nacre::speculation
