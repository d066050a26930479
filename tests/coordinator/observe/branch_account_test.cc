#include "coordinator/observe/branch_account.h"

#include <gtest/gtest.h>

#include <vector>

namespace nacre::coordinator {
namespace {

using Ids = std::vector<int32_t>;

speculation::Tail Nodes(int base_length, int first_node, Ids parents,
                        Ids token_ids) {
  speculation::Tail tail;
  tail.base_length = tail.first_position = base_length;
  tail.first_node = first_node;
  tail.parents = std::move(parents);
  tail.token_ids = std::move(token_ids);
  tail.scores.assign(tail.token_ids.size(), -1.0f);
  return tail;
}

TEST(BranchAccountTest, AChainHasNone) {
  BranchAccount account(3);
  speculation::Tail chain;
  chain.base_length = chain.first_position = 3;
  chain.token_ids = {1, 2, 3};
  account.OnTail(chain);
  account.OnCommitted(3, Ids{1, 9});
  EXPECT_EQ(account.unused(), 0);
  EXPECT_EQ(account.pending(), 0);
}

TEST(BranchAccountTest, WhatStandsBesideTheFirstChildrenIsABranch) {
  BranchAccount account(3);
  account.OnTail(Nodes(3, 1, {0, 0, 1, 2}, {'a', 'b', 'c', 'd'}));
  EXPECT_EQ(account.pending(), 4);
  EXPECT_EQ(account.unused(), 0) << "they may still be taken";
  account.OnCommitted(3, Ids{'a'});
  EXPECT_EQ(account.pending(), 1);
  EXPECT_EQ(account.unused(), 2);  // b and d
}

TEST(BranchAccountTest, ABranchThatTheTextTookIsUsed) {
  BranchAccount account(3);
  account.OnTail(Nodes(3, 1, {0, 0, 1, 2}, {'a', 'b', 'c', 'd'}));
  account.OnCommitted(3, Ids{'b'});
  EXPECT_EQ(account.pending(), 1);
  EXPECT_EQ(account.unused(), 0);
  // d is the main path now, and so is what comes behind it.
  account.OnTail(Nodes(4, 5, {4, 4}, {'e', 'f'}));
  account.OnCommitted(4, Ids{'x'});
  EXPECT_EQ(account.unused(), 1);  // f
}

TEST(BranchAccountTest, FollowsTheTextOverSeveralSteps) {
  BranchAccount account(3);
  account.OnTail(Nodes(3, 1, {0, 0, 1, 1}, {'a', 'b', 'c', 'd'}));
  account.OnTail(Nodes(3, 5, {3, 4, 4}, {'e', 'f', 'g'}));
  account.OnCommitted(3, Ids{'a', 'd', 'g'});
  EXPECT_EQ(account.unused(), 2);  // b and f
  account.OnTail(Nodes(6, 8, {7, 7}, {'h', 'i'}));
  account.OnCommitted(6, Ids{'i'});
  EXPECT_EQ(account.unused(), 2);
}

TEST(BranchAccountTest, LateNodesAreComparedWithTheText) {
  BranchAccount account(3);
  account.OnTail(Nodes(3, 1, {0}, {'a'}));
  account.OnCommitted(3, Ids{'a', 'c', 'd'});
  // They travelled while the target stepped: c is the second choice.
  account.OnTail(Nodes(3, 2, {1, 1, 3, 3}, {'b', 'c', 'd', 'e'}));
  EXPECT_EQ(account.unused(), 1);  // e; d was the first behind a branch
  account.OnTail(Nodes(3, 6, {4, 4}, {'f', 'g'}));
  EXPECT_EQ(account.pending(), 2);
  account.OnCommitted(6, Ids{'g'});
  EXPECT_EQ(account.unused(), 1);
}

TEST(BranchAccountTest, OfALostDraftNothingStands) {
  BranchAccount account(3);
  account.OnTail(Nodes(3, 1, {0, 0, 1}, {'a', 'b', 'c'}));
  account.OnDraftLeft();
  EXPECT_EQ(account.pending(), 0);
  EXPECT_EQ(account.unused(), 0);
  // The next one numbers anew.
  account.OnTail(Nodes(3, 1, {0, 0}, {'x', 'y'}));
  account.OnCommitted(3, Ids{'x'});
  EXPECT_EQ(account.unused(), 1);
}

TEST(BranchAccountTest, ForgetsTheFirstOfTooMany) {
  BranchAccount account(3);
  for (int i = 0; i < 50; ++i) {
    account.OnTail(Nodes(3, 1 + 100 * i, Ids(100, 0), Ids(100, i)));
  }
  EXPECT_EQ(account.pending(), 1024);
  account.OnCommitted(3, Ids{77});
  EXPECT_EQ(account.pending(), 0);
}

}  // namespace
}  // namespace nacre::coordinator
