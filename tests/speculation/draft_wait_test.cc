#include "speculation/draft_wait.h"

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

constexpr int64_t kTimeout = 100;

TEST(DraftWait, ADraftThatSendsNothingIsSilentAfterTheTimeout) {
  DraftWait wait(true, kTimeout);
  EXPECT_TRUE(wait.MayCome(5));
  EXPECT_TRUE(wait.WaitAtGate(10));
  EXPECT_TRUE(wait.WaitAtGate(109));
  EXPECT_EQ(wait.gate_deadline_ns(), 110);
  EXPECT_FALSE(wait.WaitAtGate(110));
  EXPECT_EQ(wait.gate_deadline_ns(), absl::nullopt);
  EXPECT_TRUE(wait.is_without_draft());
  EXPECT_FALSE(wait.MayCome(5));
  wait.OnHeard(/*missed=*/true);
  EXPECT_TRUE(wait.MayCome(5));
  // One that sends something meanwhile, but too little, is not.
  EXPECT_TRUE(wait.WaitAtGate(200));
  wait.OnHeard(/*missed=*/false);
  EXPECT_FALSE(wait.WaitAtGate(300));
  EXPECT_TRUE(wait.MayCome(5));
  // What came before a wait began says nothing of it.
  wait.OnHeard(/*missed=*/false);
  EXPECT_TRUE(wait.WaitAtGate(400));
  EXPECT_FALSE(wait.WaitAtGate(500));
  EXPECT_FALSE(wait.MayCome(5));
}

TEST(DraftWait, IsAfterAMissUntilACommitFindsTheTokenOrItComesLate) {
  DraftWait wait(true, kTimeout);
  EXPECT_TRUE(wait.missed());
  wait.OnCommitted();
  EXPECT_FALSE(wait.missed());
  wait.OnMismatch();
  EXPECT_TRUE(wait.missed());
  wait.OnHeard(/*missed=*/false);  // a sibling of the token that differed
  EXPECT_FALSE(wait.missed());
  wait.OnAttached();
  EXPECT_TRUE(wait.missed());
}

TEST(DraftWait, ATimeoutIsAlsoOfAWaitThatRuns) {
  DraftWait wait(true, kTimeout);
  EXPECT_TRUE(wait.WaitAtGate(10));
  wait.OnTimeout(20);
  EXPECT_EQ(wait.gate_deadline_ns(), 30);
  wait.EndGateWait();
  EXPECT_TRUE(wait.WaitAtGate(40)) << "a new wait";
}

TEST(DraftWait, TheTwoWaitsHaveTimesOfTheirOwn) {
  DraftWait wait(true, kTimeout);
  EXPECT_FALSE(wait.waits_with_last_row());
  EXPECT_TRUE(wait.WaitWithLastRow(10));
  EXPECT_TRUE(wait.waits_with_last_row());
  EXPECT_EQ(wait.last_row_deadline_ns(), 110);
  EXPECT_EQ(wait.gate_deadline_ns(), absl::nullopt);
  wait.EndLastRowWait();
  EXPECT_FALSE(wait.waits_with_last_row());
  EXPECT_TRUE(wait.WaitWithLastRow(60));
  wait.OnHeard(/*missed=*/false);
  EXPECT_FALSE(wait.WaitWithLastRow(160));
  EXPECT_FALSE(wait.is_without_draft());
  EXPECT_TRUE(wait.WaitWithLastRow(170));
  EXPECT_FALSE(wait.WaitWithLastRow(270));
  EXPECT_TRUE(wait.is_without_draft());
}

TEST(DraftWait, WhatTheDraftSaidOfGoingOn) {
  DraftWait wait(true, kTimeout);
  wait.OnStop(StopMark::kLead);
  EXPECT_FALSE(wait.MayCome(5));
  wait.OnCommitted();
  EXPECT_TRUE(wait.MayCome(5)) << "a commit makes room";
  wait.OnStop(StopMark::kEnd);
  wait.OnCommitted();
  EXPECT_FALSE(wait.MayCome(5)) << "only a mismatch helps";
  wait.OnMismatch();
  EXPECT_TRUE(wait.MayCome(5));
  wait.OnStop(StopMark::kEnd);
  wait.OnCommitted();
  wait.OnBranch();
  EXPECT_TRUE(wait.MayCome(5)) << "or a branch";
  EXPECT_FALSE(wait.missed());
  wait.OnStop(StopMark::kChunk);
  EXPECT_FALSE(wait.has_stopped()) << "it goes on after a chunk";
  wait.OnChunk(8);
  EXPECT_FALSE(wait.MayCome(7));
  EXPECT_TRUE(wait.MayCome(8)) << "the chunk was verified";
}

TEST(DraftWait, ADraftMayGoAndAnotherCome) {
  DraftWait wait(true, kTimeout);
  wait.OnStop(StopMark::kEnd);
  wait.OnLost();
  EXPECT_FALSE(wait.has_draft());
  EXPECT_TRUE(wait.is_without_draft());
  wait.OnAttached();
  EXPECT_TRUE(wait.MayCome(5));
  EXPECT_FALSE(DraftWait(false, kTimeout).MayCome(5));
}

}  // namespace
}  // namespace nacre::speculation
