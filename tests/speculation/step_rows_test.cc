#include "speculation/step_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

// A tree below a text of one token, of (parent's number, log2 probability).
TokenTree MakeTree(const std::vector<std::pair<int, float>>& nodes) {
  const std::vector<int32_t> text = {1};
  TokenTree tree(1);
  int number = 0;
  for (const auto& [parent, score] : nodes) {
    ++number;
    const TokenTree::Outcome outcome = tree.Add({.number = number,
                                                 .parent = parent,
                                                 .base_length = 1,
                                                 .token_id = 100 + number,
                                                 .score = score},
                                                text);
    EXPECT_EQ(outcome, TokenTree::Outcome::kAdded);
  }
  return tree;
}

StepTimeCurve Curve(const std::vector<std::pair<int, int64_t>>& times) {
  StepTimeCurve curve;
  for (const auto& [rows, ns] : times) curve.Add(rows, ns);
  return curve;
}

// 1/2, 1/4 and 1/8 after one another.
TokenTree Falling() { return MakeTree({{0, -1}, {1, -1}, {2, -1}}); }

TEST(StepRows, TakesNodesAsLongAsTheyPay) {
  const TokenTree tree = Falling();
  const StepTree session = {&tree, 8, 64};
  const StepLoad alone = {1, 1, 512};
  // A row costs a tenth of a step: 1.5 / 1.1, 1.75 / 1.2, 1.875 / 1.3.
  EXPECT_EQ(ChooseStepRows({session}, alone, Curve({{1, 1000}, {11, 2000}})),
            std::vector<int>{2});
  // Half a step: none pays.
  EXPECT_EQ(ChooseStepRows({session}, alone, Curve({{1, 1000}, {3, 2000}})),
            std::vector<int>{0});
  EXPECT_EQ(ChooseStepRows({session}, alone, Curve({{1, 1000}, {8, 1000}})),
            std::vector<int>{3});
}

TEST(StepRows, ATreeThatTakesAllComesFirst) {
  const TokenTree tree = Falling();
  const StepTimeCurve steep = Curve({{1, 1000}, {64, 64000}});
  const StepTree priced = {&tree, 8, 64};
  const StepTree all = {&tree, 8, 64, true};
  EXPECT_EQ(ChooseStepRows({priced, all}, {2, 2, 512}, steep),
            (std::vector<int>{1, 3}));  // 2 / 5, 2.5 / 6, 2.75 / 7
  // Within its own limits and those of the step.
  EXPECT_EQ(ChooseStepRows({{&tree, 2, 64, true}}, {1, 1, 512}, steep),
            std::vector<int>{2});
  EXPECT_EQ(ChooseStepRows({{&tree, 8, 1, true}}, {1, 1, 512}, steep),
            std::vector<int>{1});
  EXPECT_EQ(ChooseStepRows({all, all}, {2, 2, 6}, steep),
            (std::vector<int>{3, 1}));
}

TEST(StepRows, LooksBehindAStepOfTheCurve) {
  // The fifth row costs half a step, the next ones nothing.
  std::vector<std::pair<int, float>> nodes(12, {0, -2});  // 1/4 each
  const TokenTree tree = MakeTree(nodes);
  const StepTimeCurve curve =
      Curve({{1, 1000}, {4, 1000}, {5, 1500}, {13, 1500}});
  EXPECT_EQ(ChooseStepRows({{&tree, 8, 64}}, {1, 1, 512}, curve),
            std::vector<int>{12});
  // There are not enough of them to make up for it.
  EXPECT_EQ(ChooseStepRows({{&tree, 8, 5}}, {1, 1, 512}, curve),
            std::vector<int>{3});
}

TEST(StepRows, HasOnePriceForAllSessions) {
  const TokenTree likely = MakeTree({{0, -0.1f}, {1, -0.1f}, {2, -0.1f}});
  const TokenTree unlikely = MakeTree({{0, -5}, {0, -6}});
  const StepTimeCurve curve = Curve({{1, 1000}, {2, 1100}, {16, 2500}});
  EXPECT_EQ(ChooseStepRows({{&unlikely, 8, 64}, {&likely, 8, 64}}, {2, 2, 512},
                           curve),
            (std::vector<int>{0, 3}));
}

TEST(StepRows, AFullStepTakesNoNode) {
  // Each row of many costs as much as any: a node gives less than a session.
  const TokenTree tree = Falling();
  const std::vector<StepTree> trees(64, {&tree, 8, 64});
  const StepTimeCurve curve = Curve({{1, 100}, {64, 6400}, {128, 12800}});
  EXPECT_EQ(ChooseStepRows(trees, {64, 64, 512}, curve),
            std::vector<int>(64, 0));
}

TEST(StepRows, KeepsToItsLimits) {
  const TokenTree tree =
      MakeTree(std::vector<std::pair<int, float>>(40, {0, -1}));
  const TokenTree deep = Falling();
  const StepTimeCurve flat = Curve({{1, 1000}, {512, 1000}});
  const auto count = [&](const StepTree& session, const StepLoad& load,
                         const StepTimeCurve& curve) {
    return ChooseStepRows({session}, load, curve)[0];
  };
  EXPECT_EQ(count({&tree, 8, 64}, {1, 1, 512}, flat), 40);
  EXPECT_EQ(count({&tree, 8, 7}, {1, 1, 512}, flat), 7);
  EXPECT_EQ(count({&tree, 8, 64}, {1, 1, 11}, flat), 10);
  EXPECT_EQ(count({&tree, 8, 64}, {1, 20, 16}, flat), 0);
  EXPECT_EQ(count({&deep, 2, 64}, {1, 1, 512}, flat), 2);
  EXPECT_EQ(count({&deep, 0, 64}, {1, 1, 512}, flat), 0);
  // Rows that were never measured do not look free.
  EXPECT_EQ(count({&tree, 8, 64}, {1, 1, 512}, Curve({{1, 1000}, {6, 1000}})),
            11);
  EXPECT_EQ(count({&tree, 8, 64}, {1, 1, 512}, StepTimeCurve()), 0);
}

TEST(StepRows, ADisturbedMeasurementHidesNoRows) {
  const TokenTree tree =
      MakeTree(std::vector<std::pair<int, float>>(15, {0, -2}));
  const StepTimeCurve curve =
      Curve({{1, 1000}, {16, 1100}, {4, 1900}, {9, 1800}});
  EXPECT_EQ(ChooseStepRows({{&tree, 8, 64}}, {1, 1, 512}, curve),
            std::vector<int>{15});
}

// Against trying all numbers of the likeliest nodes.
TEST(StepRows, IsWithinHalfAPercentOfTheBestOfAllNumbers) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenTree> owned;
    const int sessions = 1 + static_cast<int>(random() % 5);
    for (int i = 0; i < sessions; ++i) {
      std::vector<std::pair<int, float>> nodes;
      for (int n = static_cast<int>(random() % 24); n > 0; --n) {
        nodes.emplace_back(static_cast<int>(random() % (nodes.size() + 1)),
                           -static_cast<float>(random() % 64) / 16);
      }
      owned.push_back(MakeTree(nodes));
    }
    std::vector<StepTree> trees;
    std::vector<float> scores;
    for (const TokenTree& tree : owned) {
      trees.push_back({&tree, 64, 64});
      for (const TokenTree::Node& node : tree.nodes()) {
        scores.push_back(node.path_score);
      }
    }
    std::sort(scores.rbegin(), scores.rend());
    StepTimeCurve curve;
    int64_t time = 1000;
    for (int rows = 1; rows < 160; ++rows) {
      time += random() % 8 == 0 ? 200 : random() % 40;
      curve.Add(rows, time);
    }
    const std::vector<int> counts =
        ChooseStepRows(trees, {sessions, sessions, 512}, curve);
    double best = 0;
    double tokens = sessions;
    for (size_t n = 0; n <= scores.size(); ++n) {
      if (n > 0) tokens += std::exp2(scores[n - 1]);
      best = std::max(best, tokens / curve.At(sessions + static_cast<int>(n)));
    }
    double chosen = sessions;
    int rows = sessions;
    for (int i = 0; i < sessions; ++i) {
      std::vector<int> nodes;
      owned[i].Best(counts[i], 64, &nodes);
      ASSERT_EQ(static_cast<int>(nodes.size()), counts[i]);
      rows += counts[i];
      for (const int node : nodes) {
        chosen += std::exp2(owned[i].nodes()[node].path_score);
        // Its parent is a row.
        const int parent = owned[i].nodes()[node].parent;
        ASSERT_TRUE(parent == TokenTree::kRoot ||
                    std::count(nodes.begin(), nodes.end(), parent) == 1);
      }
    }
    ASSERT_GE(chosen / curve.At(rows), 0.9949 * best) << "round " << round;
  }
}

// A chain may have 32 tokens where a tree may have 16 nodes: the tree must not
// be the shorter of them.
TEST(StepRows, ABestPathIsAsLongAsAChain) {
  std::vector<std::pair<int, float>> nodes;
  for (int i = 0; i < 12; ++i) nodes.push_back({i, -0.1f});
  for (int i = 0; i < 12; ++i) nodes.push_back({i, -0.5f});  // beside each
  const TokenTree tree = MakeTree(nodes);
  StepTree session = {&tree, 10, 4};
  std::vector<int> likeliest;
  session.Likeliest(64, &likeliest);
  EXPECT_EQ(likeliest, (std::vector<int>{0, 1, 2, 3}));
  session.path_goes_on = true;
  session.Likeliest(64, &likeliest);
  EXPECT_EQ(likeliest, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  session.Likeliest(6, &likeliest);
  EXPECT_EQ(likeliest, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  // Of the first six one is beside the path: it stays.
  session.most = 6;
  session.Likeliest(64, &likeliest);
  EXPECT_EQ(likeliest, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12}));
  session.most = 1;
  EXPECT_EQ(ChooseStepRows({session}, {1, 1, 512}, Curve({{1, 100}, {9, 101}})),
            std::vector<int>{10});
  EXPECT_EQ(ChooseStepRows({session}, {1, 1, 7}, Curve({{1, 100}, {9, 101}})),
            std::vector<int>{6});
}

TEST(StepRows, MoreNodesHaveAllOfFewer) {
  std::minstd_rand random(7);
  std::vector<int> fewer;
  std::vector<int> more;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<int, float>> nodes;
    for (int i = 0; i < 60; ++i) {
      const int parent = random() % 3 == 0
                             ? static_cast<int>(random() % (i + 1))
                             : std::max(0, i - static_cast<int>(random() % 3));
      nodes.push_back({parent, -0.01f * static_cast<float>(random() % 200)});
    }
    const TokenTree tree = MakeTree(nodes);
    const int depth = 1 + static_cast<int>(random() % 40);
    const int most = 1 + static_cast<int>(random() % 20);
    const StepTree session = {
        .tree = &tree, .max_depth = depth, .most = most, .path_goes_on = true};
    std::vector<int> path;
    tree.BestPath(&path);
    const int length = std::min(depth, static_cast<int>(path.size()));
    fewer.clear();
    for (int count = 1; count <= 64; ++count) {
      session.Likeliest(count, &more);
      ASSERT_LE(more.size(), most + length);
      ASSERT_LE(more.size(), fewer.size() + 1);
      ASSERT_TRUE(
          std::includes(more.begin(), more.end(), fewer.begin(), fewer.end()));
      int beside = 0;
      for (const int node : more) {
        beside += std::count(path.begin(), path.end(), node) == 0 ? 1 : 0;
        const int parent = tree.nodes()[node].parent;
        ASSERT_TRUE(parent == TokenTree::kRoot ||
                    std::binary_search(more.begin(), more.end(), parent));
      }
      // A slot each.
      ASSERT_LE(beside, most);
      fewer = more;
    }
    ASSERT_GE(static_cast<int>(more.size()),
              std::min(length, static_cast<int>(tree.nodes().size())));
  }
}

}  // namespace
}  // namespace nacre::speculation
