#include "speculation/token_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using Outcome = TokenTree::Outcome;
using Text = std::vector<int32_t>;

// A tree after the text {1, 2, 3}, and messages of that base.
class TokenTreeTest : public testing::Test {
 protected:
  Outcome Add(int number, int parent, int32_t token_id, float score = -1) {
    return AddOf(3, number, parent, token_id, score);
  }
  Outcome AddOf(int base_length, int number, int parent, int32_t token_id,
                float score = -1) {
    return tree_.Add({number, parent, base_length, token_id, score}, text_);
  }
  int Commit(const Text& token_ids) {
    text_.insert(text_.end(), token_ids.begin(), token_ids.end());
    return tree_.Reroot(token_ids);
  }
  Text Tokens() const {
    Text tokens;
    for (const TokenTree::Node& node : tree_.nodes()) {
      tokens.push_back(node.token_id);
    }
    return tokens;
  }

  Text text_ = {1, 2, 3};
  TokenTree tree_{3};
};

TEST_F(TokenTreeTest, GrowsBelowTheTextAndBelowNodes) {
  EXPECT_EQ(Add(1, 0, 10), Outcome::kAdded);
  EXPECT_EQ(Add(2, 1, 11, -0.5), Outcome::kAdded);
  EXPECT_EQ(Add(5, 0, 20, -2), Outcome::kAdded);
  ASSERT_EQ(tree_.nodes().size(), 3);
  EXPECT_EQ(tree_.nodes()[1].parent, 0);
  EXPECT_EQ(tree_.nodes()[1].depth, 2);
  EXPECT_EQ(tree_.nodes()[1].path_score, -1.5);
  EXPECT_EQ(tree_.nodes()[2].parent, TokenTree::kRoot);
  EXPECT_EQ(tree_.Child(TokenTree::kRoot, 20), 2);
  EXPECT_EQ(tree_.Child(0, 11), 1);
  EXPECT_EQ(tree_.Child(0, 20), absl::nullopt);
}

TEST_F(TokenTreeTest, KeepsTheSubtreeOfTheLastCommittedToken) {
  Add(1, 0, 10);
  Add(2, 0, 20);
  Add(3, 1, 11, -0.25);
  Add(4, 2, 21);
  Add(5, 3, 12, -0.5);
  Add(6, 3, 13, -3);
  EXPECT_EQ(Commit({10, 11}), 2);
  EXPECT_EQ(tree_.length(), 5);
  EXPECT_EQ(Tokens(), Text({12, 13}));
  EXPECT_EQ(tree_.nodes()[0].depth, 1);
  EXPECT_EQ(tree_.nodes()[1].path_score, -3);
  EXPECT_EQ(tree_.Find(6)->index, 1);
  EXPECT_EQ(tree_.Find(4), absl::nullopt);
  EXPECT_EQ(tree_.Find(3)->text_length, 5);
}

TEST_F(TokenTreeTest, LosesAllWhereATokenHasNoNode) {
  Add(1, 0, 10);
  Add(2, 1, 11);
  EXPECT_EQ(Commit({10, 99}), 1);
  EXPECT_TRUE(tree_.nodes().empty());
  EXPECT_EQ(tree_.Find(1)->text_length, 4);
  EXPECT_EQ(tree_.Find(2), absl::nullopt);
}

// Without this a hop longer than a step starves the target.
TEST_F(TokenTreeTest, AdoptsALateNodeWhoseTextWasCommitted) {
  Add(1, 0, 10);
  EXPECT_EQ(Commit({10, 11}), 1);  // 11 had not come yet
  EXPECT_EQ(Add(2, 1, 11), Outcome::kCommitted);
  EXPECT_EQ(Add(3, 2, 12), Outcome::kAdded);
  EXPECT_EQ(tree_.nodes()[0].parent, TokenTree::kRoot);
  EXPECT_EQ(tree_.nodes()[0].depth, 1);
}

TEST_F(TokenTreeTest, DropsALateNodeThatTheTextContradictsAndWhatIsBelow) {
  Add(1, 0, 10);
  Commit({10, 11});
  EXPECT_EQ(Add(2, 1, 99), Outcome::kContradicted);
  EXPECT_EQ(Add(2, 1, 11), Outcome::kStale);  // 2 has had its turn
  EXPECT_EQ(Add(3, 2, 12), Outcome::kStale);
  EXPECT_TRUE(tree_.nodes().empty());
}

TEST_F(TokenTreeTest, ReadsTheRootOfAnOlderMessageAsItsOwnText) {
  Commit({10, 11});
  // 0 stands for the text of length 3, not for the root of now.
  EXPECT_EQ(AddOf(3, 1, 0, 12), Outcome::kContradicted);
  EXPECT_EQ(AddOf(3, 2, 0, 10), Outcome::kCommitted);
  EXPECT_EQ(AddOf(3, 3, 2, 11), Outcome::kCommitted);
  EXPECT_EQ(AddOf(5, 4, 0, 12), Outcome::kAdded);
  EXPECT_EQ(AddOf(3, 5, 3, 12, -0.5), Outcome::kMerged);
  EXPECT_EQ(tree_.nodes()[0].score, -0.5);
}

TEST_F(TokenTreeTest, MergesAnEqualSiblingUnderBothNumbers) {
  Add(1, 0, 10, -4);
  Add(2, 1, 11, -1);
  EXPECT_EQ(Add(3, 0, 10, -2), Outcome::kMerged);
  EXPECT_EQ(tree_.nodes().size(), 2);
  EXPECT_EQ(tree_.nodes()[1].path_score, -3);
  EXPECT_EQ(Add(4, 0, 10, -8), Outcome::kMerged);
  EXPECT_EQ(tree_.nodes()[0].score, -2);
  EXPECT_EQ(Add(5, 4, 12), Outcome::kAdded);
  EXPECT_EQ(tree_.nodes()[2].parent, 0);
  Commit({10});
  EXPECT_EQ(tree_.Find(1)->text_length, 4);
  EXPECT_EQ(tree_.Find(4)->text_length, 4);
}

TEST_F(TokenTreeTest, KnowsARepetitionFromAContradictionInTerms) {
  Add(1, 0, 10);
  Add(2, 1, 11);
  EXPECT_EQ(Add(2, 1, 11), Outcome::kRepeated);
  EXPECT_EQ(Add(2, 1, 12), Outcome::kMalformed);
  EXPECT_EQ(Add(2, 0, 11), Outcome::kMalformed);
  EXPECT_EQ(Add(1, 0, 11), Outcome::kMalformed);
  Commit({10});
  EXPECT_EQ(Add(1, 0, 10), Outcome::kRepeated);
  EXPECT_EQ(Add(1, 0, 11), Outcome::kMalformed);
  EXPECT_EQ(Add(2, 1, 11), Outcome::kRepeated);
  EXPECT_EQ(AddOf(4, 2, 0, 11), Outcome::kRepeated);
  Commit({99});
  EXPECT_EQ(Add(2, 1, 11), Outcome::kStale);
  EXPECT_EQ(tree_.nodes().size(), 0);
}

TEST_F(TokenTreeTest, RefusesWhatCannotBe) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Add(0, 0, 10), Outcome::kMalformed);
  EXPECT_EQ(Add(kMaxNode, 0, 10, 0.5), Outcome::kMalformed);
  EXPECT_EQ(Add(1, 0, 10, nan), Outcome::kMalformed);
  EXPECT_EQ(Add(1, 1, 10), Outcome::kMalformed);
  EXPECT_EQ(Add(1, 2, 10), Outcome::kMalformed);
  EXPECT_EQ(Add(1, -1, 10), Outcome::kMalformed);
  EXPECT_EQ(AddOf(4, 1, 0, 10), Outcome::kMalformed);
  EXPECT_EQ(AddOf(0, 1, 0, 10), Outcome::kMalformed);
  EXPECT_EQ(tree_.Add({kMaxNode + 1, 0, 3, 10, -1}, text_),
            Outcome::kMalformed);
  EXPECT_EQ(Add(7, 3, 10), Outcome::kStale);  // 3 was never named
  EXPECT_TRUE(tree_.nodes().empty());
  EXPECT_EQ(Add(kMaxNode, 0, 10, 0), Outcome::kAdded);
}

TEST_F(TokenTreeTest, HoldsNoMoreThanItsBounds) {
  for (int i = 1; i <= TokenTree::kMaxNodes; ++i) {
    ASSERT_EQ(Add(i, 0, i), Outcome::kAdded);
  }
  EXPECT_EQ(Add(1000, 0, 0), Outcome::kMalformed);
  for (int i = TokenTree::kMaxNodes; i < TokenTree::kMaxNumbers; ++i) {
    ASSERT_EQ(Add(1000 + i, 0, 1), Outcome::kMerged);
  }
  EXPECT_EQ(Add(5000, 0, 1), Outcome::kMalformed);
  Commit({2});
  EXPECT_EQ(Add(5000, 2, 1), Outcome::kAdded);
}

TEST_F(TokenTreeTest, ForgetsCommittedPositionsThatNoMessageNames) {
  Add(1, 0, 10);
  Add(2, 1, 11);
  Commit({10, 11});
  tree_.Forget(5);
  EXPECT_EQ(tree_.Find(1), absl::nullopt);
  EXPECT_EQ(tree_.Find(2)->text_length, 5);
  EXPECT_EQ(Add(3, 1, 12), Outcome::kStale);
  EXPECT_EQ(AddOf(5, 3, 2, 12), Outcome::kAdded);
}

TEST_F(TokenTreeTest, AnotherDraftNumbersAnew) {
  Add(7, 0, 10);
  tree_.Clear();
  EXPECT_TRUE(tree_.nodes().empty());
  EXPECT_EQ(Add(1, 0, 11), Outcome::kAdded);
  EXPECT_EQ(tree_.Find(7), absl::nullopt);
}

TEST_F(TokenTreeTest, ChoosesTheLikeliestNodesWithTheirParents) {
  Add(1, 0, 10, -1);
  Add(2, 0, 20, -2);
  Add(3, 1, 11, -0.5);  // -1.5
  Add(4, 2, 21, 0);     // -2, as its parent
  Add(5, 3, 12, -3);    // -4.5
  std::vector<int> best;
  tree_.Best(1, 9, &best);
  EXPECT_EQ(best, std::vector<int>({0}));
  tree_.Best(3, 9, &best);
  EXPECT_EQ(best, std::vector<int>({0, 1, 2}));
  tree_.Best(4, 9, &best);
  EXPECT_EQ(best, std::vector<int>({0, 1, 2, 3}));
  tree_.Best(4, 1, &best);
  EXPECT_EQ(best, std::vector<int>({0, 1}));
  tree_.Best(0, 9, &best);
  EXPECT_TRUE(best.empty());
  tree_.Best(100, 9, &best);
  EXPECT_EQ(best.size(), 5);
  EXPECT_EQ(tree_.BestDepth(), 3);
}

// What a tree must be, said of texts: a number stands for a text for ever, and
// is known while that text agrees with what was committed.
class ReferenceTree {
 public:
  explicit ReferenceTree(Text text) : text_(std::move(text)) {}

  Outcome Add(const TokenTree::Proposal& proposal) {
    Text parent(text_.begin(), text_.begin() + proposal.base_length);
    if (proposal.parent != 0) {
      if (!IsKnown(proposal.parent)) return Outcome::kStale;
      parent = names_.at(proposal.parent);
    }
    parent.push_back(proposal.token_id);
    if (!Agrees(parent)) return Outcome::kContradicted;
    const bool is_new = nodes_.count(parent) == 0;
    names_[proposal.number] = parent;
    if (parent.size() <= text_.size()) return Outcome::kCommitted;
    float& score = nodes_.emplace(parent, proposal.score).first->second;
    score = std::max(score, proposal.score);
    return is_new ? Outcome::kAdded : Outcome::kMerged;
  }

  void Commit(const Text& token_ids) {
    text_.insert(text_.end(), token_ids.begin(), token_ids.end());
    for (auto it = nodes_.begin(); it != nodes_.end();) {
      const bool stays = Agrees(it->first) && it->first.size() > text_.size();
      it = stays ? std::next(it) : nodes_.erase(it);
    }
  }

  void Forget(int base_length) { base_length_ = base_length; }

  bool IsKnown(int number) const {
    const auto it = names_.find(number);
    return it != names_.end() && Agrees(it->second) &&
           static_cast<int>(it->second.size()) >= base_length_;
  }
  const Text& TextOf(int number) const { return names_.at(number); }
  const Text& text() const { return text_; }
  const std::map<Text, float>& nodes() const { return nodes_; }

 private:
  // Whether one of the two begins with the other.
  bool Agrees(const Text& text) const {
    const size_t count = std::min(text.size(), text_.size());
    return std::equal(text.begin(), text.begin() + count, text_.begin());
  }

  Text text_;
  int base_length_ = 0;
  std::map<int, Text> names_;
  std::map<Text, float> nodes_;
};

Text TextOf(const TokenTree& tree, const Text& text, int index) {
  Text path;
  for (; index != TokenTree::kRoot; index = tree.nodes()[index].parent) {
    path.push_back(tree.nodes()[index].token_id);
  }
  Text result = text;
  result.insert(result.end(), path.rbegin(), path.rend());
  return result;
}

void ExpectSame(const TokenTree& tree, const ReferenceTree& reference,
                int numbers) {
  ASSERT_EQ(tree.nodes().size(), reference.nodes().size());
  for (int i = 0; i < static_cast<int>(tree.nodes().size()); ++i) {
    const TokenTree::Node& node = tree.nodes()[i];
    const Text text = TextOf(tree, reference.text(), i);
    ASSERT_EQ(reference.nodes().count(text), 1);
    ASSERT_EQ(node.score, reference.nodes().at(text));
    ASSERT_LT(node.parent, i);
    ASSERT_EQ(node.depth, static_cast<int>(text.size()) - tree.length());
    const float above =
        node.parent == TokenTree::kRoot
            ? 0
            : tree.nodes()[static_cast<size_t>(node.parent)].path_score;
    ASSERT_EQ(node.path_score, above + node.score);
  }
  for (int number = 1; number < numbers; ++number) {
    const auto place = tree.Find(number);
    ASSERT_EQ(place.has_value(), reference.IsKnown(number)) << number;
    if (!place.has_value()) continue;
    const Text& text = reference.TextOf(number);
    ASSERT_EQ(place->text_length, static_cast<int>(text.size()));
    if (place->index.has_value()) {
      ASSERT_EQ(TextOf(tree, reference.text(), *place->index), text);
    }
  }
}

// The draft's messages and the target's commits in any order, over few tokens,
// so that much agrees by chance.
TEST(TokenTreeRandom, AgreesWithTheTextsThatNumbersStandFor) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](int limit) {
      return static_cast<int>(random() % static_cast<uint32_t>(limit));
    };
    const int vocabulary = 1 + below(4);
    ReferenceTree reference({0});
    TokenTree tree(1);
    int number = 1;
    int base = 1;
    for (int event = 0; event < 40; ++event) {
      const int length = static_cast<int>(reference.text().size());
      if (below(4) == 0) {
        Text token_ids;
        for (int i = 1 + below(3); i > 0; --i) {
          token_ids.push_back(below(vocabulary));
        }
        tree.Reroot(token_ids);
        reference.Commit(token_ids);
      } else if (below(8) == 0) {
        base = std::min(length, base + below(3));
        tree.Forget(base);
        reference.Forget(base);
      } else {
        number += 1 + below(2);
        const TokenTree::Proposal proposal = {
            number, below(3) == 0 ? 0 : below(number),
            base + below(length - base + 1), below(vocabulary),
            -0.25f * static_cast<float>(below(9))};
        ASSERT_EQ(tree.Add(proposal, reference.text()),
                  reference.Add(proposal));
      }
      ExpectSame(tree, reference, number + 2);
      if (HasFatalFailure()) return;
    }
  }
}

// Local nodes come and go: what numbers stand for is not changed by them.
TEST(TokenTreeRandom, LocalNodesChangeNothingOfTheDrafts) {
  int merged = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](int limit) {
      return static_cast<int>(random() % static_cast<uint32_t>(limit));
    };
    const int vocabulary = 1 + below(4);
    ReferenceTree reference({0});
    TokenTree tree(1);
    int number = 1;
    for (int event = 0; event < 40; ++event) {
      const int length = static_cast<int>(reference.text().size());
      const int what = below(8);
      if (what == 0) {
        const Text token_ids(1 + static_cast<size_t>(below(2)),
                             below(vocabulary));
        tree.DropLocal();
        tree.Reroot(token_ids);
        reference.Commit(token_ids);
      } else if (what < 4) {
        const int nodes = static_cast<int>(tree.nodes().size());
        const int parent = below(nodes + 1) - 1;
        const absl::optional<int> local =
            tree.AddLocal(parent, below(vocabulary), -9);
        ASSERT_TRUE(local.has_value());
        ASSERT_EQ(tree.nodes()[*local].parent, parent);
        ASSERT_TRUE(*local < nodes || tree.nodes()[*local].is_local);
        ASSERT_EQ(tree.NumberOf(*local) == 0, tree.nodes()[*local].is_local);
      } else {
        number += 1 + below(2);
        const TokenTree::Proposal proposal = {
            number, below(3) == 0 ? 0 : below(number), 1 + below(length),
            below(vocabulary), -0.25f * static_cast<float>(below(9))};
        const size_t before = tree.nodes().size();
        const Outcome outcome = tree.Add(proposal, reference.text());
        ASSERT_EQ(outcome, reference.Add(proposal));
        if (outcome == Outcome::kAdded && tree.nodes().size() == before) {
          ++merged;
        }
      }
      TokenTree without = tree;
      without.DropLocal();
      ASSERT_FALSE(without.has_local());
      ExpectSame(without, reference, number + 2);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(merged, 1000) << "draft nodes that stood there as local ones";
}

TEST_F(TokenTreeTest, LocalNodesHaveABoundOfTheirOwn) {
  int parent = TokenTree::kRoot;
  for (int i = 0; i < TokenTree::kMaxLocal; ++i) {
    const auto local = tree_.AddLocal(parent, 50, -1);
    ASSERT_TRUE(local.has_value());
    parent = *local;
  }
  EXPECT_EQ(tree_.AddLocal(parent, 50, -1), absl::nullopt);
  for (int i = 1; i <= TokenTree::kMaxNodes; ++i) {
    EXPECT_EQ(Add(i, 0, 100 + i), Outcome::kAdded);
  }
  EXPECT_EQ(Add(400, 0, 50), Outcome::kMalformed) << "it would be one more";
  tree_.DropLocal();
  EXPECT_EQ(static_cast<int>(tree_.nodes().size()), TokenTree::kMaxNodes);
}

// Best against trying all sets that hold the parents of their nodes.
TEST(TokenTreeRandom, BestIsTheLargestSumOfProbabilities) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    TokenTree tree(1);
    const int count = 1 + static_cast<int>(random() % 10);
    for (int i = 1; i <= count; ++i) {
      tree.Add(
          {i, static_cast<int>(random() % static_cast<uint32_t>(i)), 1,
           static_cast<int32_t>(i), -0.5f * static_cast<float>(random() % 5)},
          {7});
    }
    const auto sum = [&tree](const std::vector<int>& indices) {
      double total = 0;
      for (const int i : indices)
        total += std::exp2(tree.nodes()[i].path_score);
      return total;
    };
    for (int wanted = 0; wanted <= count; ++wanted) {
      double most = 0;
      for (uint32_t set = 0; set < (1u << count); ++set) {
        std::vector<int> indices;
        bool is_closed = true;
        for (int i = 0; i < count; ++i) {
          if ((set >> i & 1) == 0) continue;
          indices.push_back(i);
          const int parent = tree.nodes()[i].parent;
          is_closed &= parent == TokenTree::kRoot || (set >> parent & 1) != 0;
        }
        if (is_closed && static_cast<int>(indices.size()) == wanted) {
          most = std::max(most, sum(indices));
        }
      }
      std::vector<int> best;
      tree.Best(wanted, count, &best);
      ASSERT_EQ(static_cast<int>(best.size()), wanted);
      for (const int i : best) {
        const int parent = tree.nodes()[i].parent;
        ASSERT_TRUE(parent == TokenTree::kRoot ||
                    std::count(best.begin(), best.end(), parent) == 1);
      }
      ASSERT_DOUBLE_EQ(sum(best), most);
    }
  }
}

}  // namespace
}  // namespace nacre::speculation
