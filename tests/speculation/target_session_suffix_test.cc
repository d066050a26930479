// Nodes that the target proposes to itself: when they are wanted, how they are
// verified and counted, and what a draft that comes late makes of them.

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "speculation/target_session.h"
#include "tests/speculation/session_builders.h"

namespace nacre::speculation {
namespace {

using Outcome = TargetSession::TailOutcome;
using Readiness = TargetSession::Readiness;
using Ids = std::vector<int32_t>;

// A chain of these tokens, each as likely as `given_parent`.
std::vector<SuffixNode> Chain(const Ids& token_ids, double given_parent) {
  std::vector<SuffixNode> nodes;
  double probability = 1;
  for (int i = 0; i < static_cast<int>(token_ids.size()); ++i) {
    probability *= given_parent;
    nodes.push_back({.token_id = token_ids[static_cast<size_t>(i)],
                     .parent = i - 1,
                     .match = 2 + i,
                     .probability = probability,
                     .given_parent = given_parent});
  }
  return nodes;
}

TEST(TargetSuffixes, AreVerifiedAndCountedApart) {
  TargetSession session = OpenTarget({0, 0, /*window=*/0, 0});
  ASSERT_TRUE(session.WantsSuffixes());
  EXPECT_TRUE(session.suffix_limits().is_chain) << "it has no slots";
  session.ProposeSuffixes(Chain({1, 2, 3}, 0.9));
  EXPECT_FALSE(session.WantsSuffixes()) << "once a step";
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(session.NextChain(), 0) << "their rows have a price";
  ASSERT_TRUE(session.NextTree().has_value());
  EXPECT_EQ(Rows(session.BeginTreeStep(3)), (Ids{1, 2, 3}));
  EXPECT_EQ(session.step().path_length(), 3);
  const Verdict verdict = session.FinishStep({1, 2, 9});
  EXPECT_EQ(verdict.token_ids, (Ids{1, 2, 9}));
  EXPECT_EQ(verdict.window, 3);
  EXPECT_EQ(verdict.matched, 2);
  EXPECT_EQ(verdict.suffix_proposed, 3);
  EXPECT_EQ(verdict.suffix_accepted, 2);
  EXPECT_EQ(verdict.branch_accepted, 0);
  EXPECT_EQ(verdict.verified, 0);
  EXPECT_EQ(verdict.accepted, 0);
  EXPECT_TRUE(verdict.path.empty());
  EXPECT_TRUE(session.WantsSuffixes());
}

TEST(TargetSuffixes, AreNotVerifiedUnlessTheirRowsPay) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.ProposeSuffixes(Chain({1, 2}, 0.9));
  EXPECT_TRUE(session.BeginStep().empty());
  EXPECT_EQ(session.FinishStep({1}).suffix_proposed, 0);
  EXPECT_FALSE(session.NextTree().has_value()) << "they are of one step";
}

TEST(TargetSuffixes, AreAskedForOnceTheCoordinatorHasAcknowledged) {
  TargetSession session = OpenTarget({0, 0, 8, 0}, /*max_tokens=*/50,
                                     /*max_unacknowledged=*/3);
  session.ProposeSuffixes(Chain({1, 2, 3, 4}, 0.9));
  EXPECT_EQ(Rows(session.BeginTreeStep(4)), (Ids{1, 2}));
  session.FinishStep({1, 2, 3});
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitAcknowledge);
  EXPECT_FALSE(session.WantsSuffixes()) << "no row could be verified";
  session.OnAcknowledged(session.committed_length());
  EXPECT_TRUE(session.WantsSuffixes());
  EXPECT_EQ(session.suffix_limits().max_depth, 2);
}

TargetSession OpenWithSlots(int num_slots) {
  TargetSession::Options options;
  options.text.prompt_length = 1;
  options.text.max_tokens = 200;
  options.max_unacknowledged = 200;
  options.num_slots = num_slots;
  return TargetSession(options, {7});
}

TEST(TargetSuffixes, AreAChainWithoutSlotsAlone) {
  for (const int num_slots : {0, 1, 16, 63, 64}) {
    const TargetSession session = OpenWithSlots(num_slots);
    EXPECT_EQ(session.suffix_limits().is_chain, num_slots == 0) << num_slots;
    EXPECT_EQ(session.suffix_limits().max_nodes, TokenTree::kMaxLocal);
  }
}

// The chain 1 to 6, and 8 beside 1.
std::vector<SuffixNode> ChainAndSibling() {
  std::vector<SuffixNode> nodes = Chain({1, 2, 3, 4, 5, 6}, 0.9);
  for (SuffixNode& node : nodes) node.probability *= 0.5 / 0.9;
  nodes[0].given_parent = 0.5;
  nodes.insert(
      nodes.begin() + 2,
      {.token_id = 8, .match = 2, .probability = 0.42, .given_parent = 0.42});
  for (SuffixNode& node : nodes) {
    if (node.parent >= 2) ++node.parent;
  }
  nodes[3].parent = 1;
  return nodes;
}

TEST(TargetSuffixes, ATreeGoesOnAlongItsPathWhereSlotsEnd) {
  TargetSession session = OpenWithSlots(3);
  session.ProposeSuffixes(ChainAndSibling());
  ASSERT_TRUE(session.NextTree().has_value());
  EXPECT_EQ(session.NextTree()->most, 3);
  EXPECT_EQ(Rows(session.BeginTreeStep(5)), (Ids{1, 2, 3, 4, 8}));
  EXPECT_EQ(session.step().path_length(), 4);
  EXPECT_EQ(Rows(session.step().parents()), (Ids{0, 1, 2, 3, 0}));
  const Verdict verdict = session.FinishStep({8, 9});
  EXPECT_EQ(verdict.token_ids, (Ids{8, 9}));
  EXPECT_EQ(verdict.suffix_proposed, 5);
  EXPECT_EQ(verdict.suffix_accepted, 1);
  session.ProposeSuffixes(ChainAndSibling());
  EXPECT_EQ(Rows(session.BeginTreeStep(64)), (Ids{1, 2, 3, 4, 5, 6, 8}));
}

// Of equally likely ones the likeliest three are all below the first.
TEST(TargetSuffixes, WhatIsBesideThePathIsBoundedByTheSlots) {
  TargetSession session = OpenWithSlots(2);
  std::vector<SuffixNode> nodes = Chain({1, 2, 3}, 0.3);
  for (int32_t token_id = 20; token_id < 27; ++token_id) {
    nodes.push_back(
        {.token_id = token_id, .probability = 0.1, .given_parent = 0.1});
  }
  session.ProposeSuffixes(nodes);
  EXPECT_EQ(Rows(session.BeginTreeStep(64)), (Ids{1, 2, 3, 20}));
}

TEST(TargetSuffixes, NoTreeNeedsMoreSlotsThanThereAre) {
  std::minstd_rand random(5);
  int beside = 0;
  for (int round = 0; round < 500; ++round) {
    const int num_slots = static_cast<int>(random() % 66);
    std::vector<SuffixNode> nodes;
    for (int i = 0; i < TokenTree::kMaxLocal; ++i) {
      SuffixNode node = {.token_id = i, .match = 2};
      if (num_slots == 0 || random() % 3 > 0) {
        node.parent =
            num_slots == 0 ? i - 1 : static_cast<int>(random() % (i + 1)) - 1;
      }
      node.given_parent = 0.05 * static_cast<double>(1 + random() % 19);
      nodes.push_back(node);
    }
    TargetSession session = OpenWithSlots(num_slots);
    session.ProposeSuffixes(nodes);
    std::vector<int> path;
    session.NextTree()->tree->BestPath(&path);
    const int count = 1 + static_cast<int>(random() % 64);
    const int rows = static_cast<int>(session.BeginTreeStep(count).size());
    ASSERT_LE(rows, count);
    const int used = rows - session.step().path_length();
    ASSERT_LE(used, num_slots);
    beside += used;
    if (count == 64) {
      ASSERT_EQ(session.step().path_length(), static_cast<int>(path.size()));
    }
  }
  EXPECT_GT(beside, 500 * 4);
}

TEST(TargetSuffixes, EndWithTheAnswerAndTheAcknowledgement) {
  TargetSession session = OpenTarget({0, 0, 8, 0}, /*max_tokens=*/5,
                                     /*max_unacknowledged=*/3);
  EXPECT_EQ(session.suffix_limits().max_depth, 2);
  session.ProposeSuffixes(Chain({1, 2, 3, 4}, 0.9));
  EXPECT_EQ(Rows(session.BeginTreeStep(4)), (Ids{1, 2}));
  session.FinishStep({1, 2, 3});
  session.OnAcknowledged(6);
  EXPECT_EQ(session.suffix_limits().max_depth, 1) << "two tokens are left";
  session.ProposeSuffixes(Chain({4, 5}, 0.9));
  EXPECT_EQ(Rows(session.BeginTreeStep(2)), Ids{4});
  EXPECT_EQ(session.FinishStep({4, 5}).finish, FinishReason::kLength);
  EXPECT_FALSE(session.WantsSuffixes());
}

TEST(TargetSuffixes, GiveWayToTheDraft) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.ProposeSuffixes(Chain({5, 6}, 0.9));
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2})), Outcome::kApplied);
  EXPECT_FALSE(session.WantsSuffixes());
  EXPECT_FALSE(session.NextTree().has_value());
  EXPECT_EQ(Rows(session.BeginStep()), (Ids{1, 2}));
  const Verdict verdict = session.FinishStep({1, 2, 3});
  EXPECT_EQ(verdict.suffix_proposed, 0);
  EXPECT_EQ(verdict.accepted, 2);
}

// The draft's tokens come while the target verifies the same ones of its own.
TEST(TargetSuffixes, ALateDraftIsJudgedAsIfTheyWereNot) {
  for (const bool late : {false, true}) {
    for (const Ids& drafted : {Ids{1, 2, 3, 4}, Ids{1, 9, 3, 4}, Ids{8}}) {
      // No row is the draft's: what it sends is only compared.
      TargetSession with = OpenTarget({0, 0, /*window=*/0, 0});
      TargetSession without = OpenTarget({0, 0, /*window=*/0, 0});
      with.ProposeSuffixes(Chain({1, 2, 5}, 0.9));
      with.BeginTreeStep(3);
      const Tail tail = MakeTail(3, 3, drafted);
      if (!late) {
        EXPECT_EQ(with.OnTail(tail), Outcome::kApplied);
      }
      Verdict verdict = with.FinishStep({1, 2, 3});
      EXPECT_EQ(verdict.suffix_proposed, 3);
      EXPECT_EQ(verdict.suffix_accepted, 2);
      Outcome outcome = Outcome::kApplied;
      if (late) outcome = with.OnTail(tail);
      const auto total = [](Verdict* sum, const Verdict& more) {
        sum->verified += more.verified;
        sum->accepted += more.accepted;
      };
      // The same three tokens, one a step.
      Verdict expected;
      for (const int32_t id : {1, 2, 3}) {
        without.BeginStep();
        if (!late && id == 1) without.OnTail(tail);
        total(&expected, without.FinishStep({id}));
      }
      if (late) {
        EXPECT_EQ(without.OnTail(tail), outcome);
      }
      total(&verdict, Step(with, {4}));
      total(&expected, Step(without, {4}));
      EXPECT_EQ(verdict.verified, expected.verified);
      EXPECT_EQ(verdict.accepted, expected.accepted);
      EXPECT_EQ(with.committed(), without.committed());
    }
  }
}

TEST(TargetSuffixes, OpenAGateByWhatTheyAreLikelyToGive) {
  TargetSession session = OpenTarget({/*after_mismatch=*/2, 0, 8, 1000});
  session.ProposeSuffixes(Chain({1, 2, 3}, 0.5));
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft) << "0.875 tokens";
  TargetSession likely = OpenTarget({2, 0, 8, 1000});
  likely.ProposeSuffixes(Chain({1, 2, 3}, 0.9));
  EXPECT_EQ(likely.CheckReady(0), Readiness::kReady) << "2.4 tokens";
  // A draft that says nothing is silent, whatever the target proposes itself.
  EXPECT_EQ(session.CheckReady(1000), Readiness::kReady);
  EXPECT_TRUE(Step(session, {9}).degraded);
  session.ProposeSuffixes(Chain({1}, 0.5));
  EXPECT_EQ(session.CheckReady(1000), Readiness::kReady) << "no second wait";
}

TEST(TargetSuffixes, AreNotForTheRatioTest) {
  TargetSession::Options options;
  options.text.prompt_length = 1;
  options.text.max_tokens = 9;
  options.verification = Verification::kRatio;
  EXPECT_FALSE(TargetSession(options, {1}).WantsSuffixes());
}

}  // namespace
}  // namespace nacre::speculation
