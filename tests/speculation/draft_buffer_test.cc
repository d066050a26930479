#include "speculation/draft_buffer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/speculation/session_builders.h"

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;
using Outcome = DraftBuffer::Outcome;
using Standing = DraftBuffer::Standing;

// Nodes `first` and on, each with its parent; scores fall from -0.5.
Tail MakeNodes(int base_length, int first, Ids token_ids, Ids parents,
               StopMark stop = StopMark::kNone) {
  Tail tail = MakeTail(base_length, base_length, std::move(token_ids), stop);
  tail.parents = std::move(parents);
  tail.first_node = first;
  for (size_t i = 0; i < tail.token_ids.size(); ++i) {
    tail.scores.push_back(-0.5f - static_cast<float>(i));
  }
  return tail;
}

class DraftBufferTest : public ::testing::Test {
 protected:
  Outcome Add(const Tail& tail) { return buffer_.Add(tail, text_); }
  bool Commit(const Ids& token_ids) {
    const int base = static_cast<int>(text_.size());
    text_.insert(text_.end(), token_ids.begin(), token_ids.end());
    return buffer_.OnCommitted(base, static_cast<int>(token_ids.size()), text_);
  }
  Ids BestPath() const {
    Ids ids;
    for (const int node : buffer_.best_path()) {
      ids.push_back(buffer_.tree().nodes()[node].token_id);
    }
    return ids;
  }
  void ExpectAccount(int verified, int accepted) {
    const DraftBuffer::Account account = buffer_.TakeAccount();
    EXPECT_EQ(account.verified, verified);
    EXPECT_EQ(account.accepted, accepted);
  }

  Ids text_ = {10, 11, 12};
  DraftBuffer buffer_{Verification::kExact, 3};
};

TEST_F(DraftBufferTest, AChainIsATreeOfOneChildEach) {
  EXPECT_EQ(buffer_.standing(), Standing::kMismatch);
  EXPECT_EQ(Add(MakeTail(3, 3, {1, 2})), Outcome::kApplied);
  EXPECT_EQ(Add(MakeTail(3, 5, {3})), Outcome::kApplied);
  EXPECT_EQ(BestPath(), (Ids{1, 2, 3}));
  EXPECT_EQ(buffer_.end_length(), 6);
  EXPECT_FALSE(buffer_.speaks_tree());
  EXPECT_FALSE(Commit({1, 2}));
  EXPECT_EQ(buffer_.standing(), Standing::kFlow);
  EXPECT_EQ(BestPath(), Ids{3});
  ExpectAccount(2, 2);
}

TEST_F(DraftBufferTest, AnEmptyMessageBeforeTheFirstNodeHidesNone) {
  EXPECT_EQ(Add(MakeTail(3, 3, {}, StopMark::kLead)), Outcome::kApplied);
  EXPECT_EQ(Add(MakeNodes(3, 1, {1}, {0})), Outcome::kApplied);
  EXPECT_EQ(BestPath(), Ids{1});
}

TEST_F(DraftBufferTest, TheSubtreeOfASiblingStays) {
  EXPECT_EQ(Add(MakeNodes(3, 1, {1, 5, 6}, {0, 0, 2})), Outcome::kApplied);
  EXPECT_EQ(buffer_.depth(), 1);  // the likelier child has no child
  EXPECT_FALSE(Commit({5}));
  EXPECT_EQ(buffer_.standing(), Standing::kFlow);
  EXPECT_EQ(BestPath(), Ids{6});
  ExpectAccount(1, 1);  // one place, whatever the number of siblings
}

TEST_F(DraftBufferTest, ALateNodeStandsWhereItsParentStands) {
  EXPECT_EQ(Add(MakeNodes(3, 1, {1}, {0})), Outcome::kApplied);
  EXPECT_FALSE(Commit({1, 2, 3}));
  EXPECT_EQ(buffer_.standing(), Standing::kOpen);
  ExpectAccount(1, 1);
  EXPECT_EQ(Add(MakeNodes(3, 2, {2}, {1})), Outcome::kApplied);
  EXPECT_EQ(buffer_.standing(), Standing::kOpen);
  EXPECT_EQ(Add(MakeNodes(3, 3, {3, 4}, {2, 3})), Outcome::kApplied);
  EXPECT_EQ(buffer_.standing(), Standing::kFlow);
  EXPECT_EQ(BestPath(), Ids{4});
  ExpectAccount(2, 2);
}

TEST_F(DraftBufferTest, ALateNodeThatDiffersTakesItsChildrenWithIt) {
  EXPECT_FALSE(Commit({1}));
  EXPECT_EQ(buffer_.standing(), Standing::kOpen);
  EXPECT_EQ(Add(MakeNodes(3, 1, {9, 4}, {0, 1})), Outcome::kMismatch);
  EXPECT_EQ(buffer_.standing(), Standing::kMismatch);
  EXPECT_EQ(buffer_.depth(), 0);
  ExpectAccount(1, 0);
  // Below a node that is gone.
  EXPECT_EQ(Add(MakeNodes(3, 3, {5}, {2})), Outcome::kStale);
  EXPECT_EQ(buffer_.depth(), 0);
  // The draft has heard of the right one. The gate after a mismatch stands.
  EXPECT_EQ(Add(MakeNodes(4, 4, {5}, {0})), Outcome::kApplied);
  EXPECT_EQ(BestPath(), Ids{5});
  EXPECT_EQ(buffer_.standing(), Standing::kMismatch);
}

TEST_F(DraftBufferTest, ALateSiblingMendsAMismatch) {
  EXPECT_FALSE(Commit({1}));
  EXPECT_EQ(Add(MakeNodes(3, 1, {9, 1, 4}, {0, 0, 2})), Outcome::kApplied);
  EXPECT_EQ(buffer_.standing(), Standing::kFlow);
  EXPECT_EQ(BestPath(), Ids{4});
  ExpectAccount(1, 1);
}

TEST_F(DraftBufferTest, TellsWhatBecameOfNodes) {
  EXPECT_EQ(Add(MakeNodes(3, 1, {1, 5}, {0, 0})), Outcome::kApplied);
  EXPECT_FALSE(Commit({1, 2}));
  // Late: the committed token, another one, and one behind that.
  EXPECT_EQ(Add(MakeNodes(3, 3, {2, 6, 7}, {1, 1, 4})), Outcome::kApplied);
  // Behind what was dropped.
  EXPECT_EQ(Add(MakeNodes(3, 6, {8}, {2})), Outcome::kStale);
  const DraftBuffer::Fates fates = buffer_.TakeFates();
  EXPECT_EQ(fates.placed, 2);
  EXPECT_EQ(fates.committed, 1);
  EXPECT_EQ(fates.contradicted, 1);
  EXPECT_EQ(fates.stale, 2);
  EXPECT_EQ(buffer_.TakeFates().stale, 0);
}

TEST_F(DraftBufferTest, TellsWhatBecameOfAChain) {
  EXPECT_EQ(Add(MakeTail(3, 3, {1, 2})), Outcome::kApplied);
  EXPECT_TRUE(Commit({9}));
  EXPECT_EQ(Add(MakeTail(3, 5, {3, 4})), Outcome::kStale);
  EXPECT_EQ(Add(MakeTail(4, 4, {5})), Outcome::kApplied);
  EXPECT_EQ(Add(MakeTail(3, 7, {6})), Outcome::kStale);  // out of turn
  const DraftBuffer::Fates fates = buffer_.TakeFates();
  EXPECT_EQ(fates.placed, 3);
  EXPECT_EQ(fates.committed + fates.contradicted, 0);
  EXPECT_EQ(fates.stale, 3);
}

TEST_F(DraftBufferTest, WhatWasToldIsNotTakenBack) {
  EXPECT_FALSE(Commit({1}));
  EXPECT_EQ(Add(MakeNodes(3, 1, {9}, {0})), Outcome::kMismatch);
  ExpectAccount(1, 0);
  EXPECT_EQ(Add(MakeNodes(3, 2, {1}, {0})), Outcome::kApplied);
  EXPECT_EQ(buffer_.standing(), Standing::kFlow);
  ExpectAccount(0, 0);
}

TEST_F(DraftBufferTest, ABaseOfAnotherLengthNamesAnotherParent) {
  EXPECT_FALSE(Commit({1}));
  // After {10, 11, 12}, where 1 is committed; not after that 1.
  EXPECT_EQ(Add(MakeNodes(3, 1, {2}, {0})), Outcome::kMismatch);
  EXPECT_EQ(buffer_.depth(), 0);
}

TEST_F(DraftBufferTest, AMismatchDropsAllButWhatStandsBehindTheNewText) {
  EXPECT_EQ(Add(MakeNodes(3, 1, {1, 5}, {0, 0})), Outcome::kApplied);
  EXPECT_TRUE(Commit({7}));
  EXPECT_EQ(buffer_.standing(), Standing::kMismatch);
  EXPECT_EQ(buffer_.depth(), 0);
  ExpectAccount(1, 0);
  EXPECT_EQ(Add(MakeNodes(3, 3, {2}, {1})), Outcome::kStale);
}

TEST_F(DraftBufferTest, MalformedMessagesChangeNothing) {
  EXPECT_EQ(Add(MakeNodes(3, 1, {1, 2}, {0, 1})), Outcome::kApplied);
  Tail forward = MakeNodes(3, 3, {3, 4}, {4, 2});
  Tail own = MakeNodes(3, 3, {3}, {3});
  Tail negative = MakeNodes(3, 3, {3}, {-1});
  Tail other_token = MakeNodes(3, 2, {9, 8}, {1, 2});
  Tail no_score = MakeNodes(3, 3, {3}, {2});
  no_score.scores.clear();
  Tail sure = MakeNodes(3, 3, {3}, {2});
  sure.scores = {0.5f};
  Tail nan = MakeNodes(3, 3, {3}, {2});
  nan.scores = {std::numeric_limits<float>::quiet_NaN()};
  Tail no_node = MakeNodes(3, 0, {3}, {0});
  Tail too_high = MakeNodes(3, kMaxNode, {3, 4}, {2, 2});
  Tail with_position = MakeNodes(3, 3, {3}, {2});
  with_position.first_position = 5;
  Tail with_distribution = MakeNodes(3, 3, {3}, {2});
  with_distribution.distributions = {{{3}, {1.0f}}};
  Tail no_base = MakeNodes(0, 3, {3}, {2});
  for (const Tail& tail :
       {forward, own, negative, other_token, no_score, sure, nan, no_node,
        too_high, with_position, with_distribution, no_base,
        MakeTail(3, 5, {3})}) {  // a chain, where nodes were sent
    DraftBuffer copy = buffer_;
    EXPECT_EQ(copy.Add(tail, text_), Outcome::kMalformed);
    EXPECT_EQ(copy.tree().nodes(), buffer_.tree().nodes());
    EXPECT_EQ(copy.standing(), buffer_.standing());
  }
  EXPECT_EQ(Add(MakeNodes(3, 3, {3}, {2})), Outcome::kApplied);
  EXPECT_EQ(BestPath(), (Ids{1, 2, 3}));
}

TEST_F(DraftBufferTest, NodesBehindAChainAreMalformed) {
  EXPECT_EQ(Add(MakeTail(3, 3, {1})), Outcome::kApplied);
  EXPECT_EQ(Add(MakeNodes(3, 2, {2}, {1})), Outcome::kMalformed);
  buffer_.Attach(3);  // another draft may speak otherwise
  EXPECT_EQ(Add(MakeNodes(3, 2, {2}, {0})), Outcome::kApplied);
}

TEST_F(DraftBufferTest, TheRatioTestTakesNoTree) {
  DraftBuffer ratio(Verification::kRatio, 3);
  EXPECT_EQ(ratio.Add(MakeNodes(3, 1, {1}, {0}), text_), Outcome::kMalformed);
}

TEST_F(DraftBufferTest, ARepeatedMessageIsNotApplied) {
  const Tail tail = MakeNodes(3, 1, {1, 2}, {0, 1}, StopMark::kLead);
  EXPECT_EQ(Add(tail), Outcome::kApplied);
  EXPECT_EQ(Add(tail), Outcome::kRepeated);
  // A notice without nodes says more.
  EXPECT_EQ(Add(MakeTail(3, 5, {}, StopMark::kEnd)), Outcome::kApplied);
  EXPECT_EQ(Add(MakeTail(3, 5, {}, StopMark::kEnd)), Outcome::kRepeated);
  EXPECT_EQ(Add(MakeTail(3, 1000, {}, StopMark::kEnd)), Outcome::kMalformed);
  EXPECT_EQ(buffer_.depth(), 2);
}

TEST_F(DraftBufferTest, MoreNodesThanADraftMaySendAreMalformed) {
  for (int number = 1; number <= kMaxTailNodes; ++number) {
    ASSERT_EQ(Add(MakeNodes(3, number, {number}, {0})), Outcome::kApplied);
  }
  EXPECT_EQ(Add(MakeNodes(3, kMaxTailNodes + 1, {1000}, {0})),
            Outcome::kMalformed);
  EXPECT_EQ(buffer_.tree().nodes().size(), size_t{kMaxTailNodes});
}

TEST_F(DraftBufferTest, ALongTextForgetsTheNumbersThatNoMessageNames) {
  // Far more numbers than a tree holds at a time.
  for (int i = 0; i < 3 * TokenTree::kMaxNumbers; ++i) {
    const int base = static_cast<int>(text_.size());
    ASSERT_EQ(Add(MakeNodes(base, i + 1, {i}, {0})), Outcome::kApplied) << i;
    ASSERT_FALSE(Commit({i}));
    ASSERT_EQ(buffer_.standing(), Standing::kFlow);
  }
}

TEST_F(DraftBufferTest, AnotherDraftBeginsAnew) {
  EXPECT_EQ(Add(MakeNodes(3, 5, {1}, {0})), Outcome::kApplied);
  EXPECT_FALSE(Commit({1}));
  buffer_.Attach(3);
  EXPECT_EQ(buffer_.depth(), 0);
  EXPECT_EQ(buffer_.standing(), Standing::kMismatch);
  // Its numbers are its own; what it has is compared.
  EXPECT_EQ(Add(MakeNodes(3, 1, {1, 2}, {0, 1})), Outcome::kApplied);
  EXPECT_EQ(BestPath(), Ids{2});
}

TEST_F(DraftBufferTest, TheTargetsOwnNodesAreNotTheDrafts) {
  const std::vector<SuffixNode> own = {
      {.token_id = 1, .parent = -1, .probability = 0.5, .given_parent = 0.5},
      {.token_id = 2, .parent = 0, .probability = 0.25, .given_parent = 0.5},
      {.token_id = 3, .parent = 1, .probability = 0.25, .given_parent = 1}};
  buffer_.SetLocal(own);
  EXPECT_EQ(BestPath(), (Ids{1, 2, 3}));
  EXPECT_FALSE(buffer_.has_draft_tail());
  EXPECT_EQ(buffer_.worth(), 1) << "0.5 + 0.25 + 0.25 of 3";
  EXPECT_EQ(buffer_.standing(), Standing::kMismatch);
  // The draft says the same, and goes on.
  EXPECT_EQ(Add(MakeTail(3, 3, {1})), Outcome::kApplied);
  EXPECT_TRUE(buffer_.has_draft_tail());
  EXPECT_EQ(buffer_.depth(), 3);
  EXPECT_FALSE(Commit({1, 2}));
  EXPECT_EQ(buffer_.standing(), Standing::kOpen) << "of 2 it has said nothing";
  EXPECT_EQ(buffer_.depth(), 0) << "the target's own are proposed anew";
  ExpectAccount(1, 1);
  EXPECT_EQ(Add(MakeTail(3, 4, {2, 9})), Outcome::kApplied);
  EXPECT_EQ(BestPath(), Ids{9});
  ExpectAccount(1, 1);
}

// A draft is judged the same whatever the target proposes to itself.
TEST(DraftBufferRandom, TheTargetsOwnNodesChangeNoAccount) {
  for (uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](int limit) {
      return static_cast<int>(random() % static_cast<uint32_t>(limit));
    };
    const bool trees = below(2) == 0;
    Ids text = {0};
    DraftBuffer plain(Verification::kExact, 1);
    DraftBuffer mixed(Verification::kExact, 1);
    int number = 1;
    int base = 1;
    for (int event = 0; event < 40; ++event) {
      const int length = static_cast<int>(text.size());
      std::vector<SuffixNode> own(static_cast<size_t>(below(4)));
      for (int i = 0; i < static_cast<int>(own.size()); ++i) {
        own[static_cast<size_t>(i)] = {.token_id = below(3),
                                       .parent = below(i + 1) - 1,
                                       .probability = 0.5,
                                       .given_parent = 0.001};
      }
      mixed.SetLocal(own);
      if (below(3) == 0) {
        for (int i = 1 + below(3); i > 0; --i) text.push_back(below(3));
        const int count = static_cast<int>(text.size()) - length;
        ASSERT_EQ(plain.OnCommitted(length, count, text),
                  mixed.OnCommitted(length, count, text));
      } else {
        base += below(length - base + 1);
        Tail tail = MakeTail(base, base, Ids(1 + below(3), below(3)));
        if (trees) {
          tail.first_node = number;
          for (size_t i = 0; i < tail.token_ids.size(); ++i) {
            tail.parents.push_back(below(number++));
            tail.scores.push_back(-0.5f);
          }
        } else {
          tail.first_position = std::max(base, plain.end_length());
        }
        ASSERT_EQ(plain.Add(tail, text), mixed.Add(tail, text));
      }
      ASSERT_EQ(plain.standing(), mixed.standing());
      ASSERT_EQ(plain.end_length(), mixed.end_length());
      ASSERT_EQ(plain.depth() > 0, mixed.has_draft_tail());
      const DraftBuffer::Account account = plain.TakeAccount();
      const DraftBuffer::Account same = mixed.TakeAccount();
      ASSERT_EQ(account.verified, same.verified);
      ASSERT_EQ(account.accepted, same.accepted);
    }
  }
}

}  // namespace
}  // namespace nacre::speculation
