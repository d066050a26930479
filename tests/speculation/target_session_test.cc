// The target's state machine: what it takes from a draft, and when its gate is
// open. target_session_step_test.cc has what a step decides.

#include "speculation/target_session.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/speculation/session_builders.h"

namespace nacre::speculation {
namespace {

using Outcome = TargetSession::TailOutcome;
using Readiness = TargetSession::Readiness;

// Equal state shows in equal behaviour: what comes next, and what it counts.
void ExpectUnchangedBy(const TargetSession& before, const Tail& tail,
                       Outcome outcome) {
  TargetSession untouched = before;
  TargetSession session = before;
  EXPECT_EQ(session.OnTail(tail), outcome);
  EXPECT_EQ(session.committed(), untouched.committed());
  EXPECT_EQ(session.CheckReady(0), untouched.CheckReady(0));
  EXPECT_EQ(session.wait().gate_deadline_ns(),
            untouched.wait().gate_deadline_ns());
  const absl::Span<const int32_t> rows = session.BeginStep();
  EXPECT_EQ(Rows(rows), Rows(untouched.BeginStep()));
  const std::vector<int32_t> drawn = Drawn(rows, 77);
  const Verdict verdict = session.FinishStep(drawn);
  const Verdict expected = untouched.FinishStep(drawn);
  EXPECT_EQ(verdict.verified, expected.verified);
  EXPECT_EQ(verdict.accepted, expected.accepted);
  EXPECT_EQ(verdict.degraded, expected.degraded);
}

TEST(TargetSession, StartsInMismatchAndWaitsForThatGate) {
  TargetSession session = OpenTarget({.gate_after_mismatch = 2,
                                      .gate_in_flow = 0,
                                      .window = 4,
                                      .gate_timeout_ns = 1000});
  EXPECT_EQ(session.CheckReady(5), Readiness::kWaitDraft);
  EXPECT_EQ(session.wait().gate_deadline_ns(), 1005);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(6), Readiness::kWaitDraft);
  EXPECT_EQ(session.wait().gate_deadline_ns(), 1005);  // since it began to wait
  EXPECT_EQ(session.OnTail(MakeTail(3, 4, {2})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(7), Readiness::kReady);
  EXPECT_EQ(session.wait().gate_deadline_ns(), absl::nullopt);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2}));
}

TEST(TargetSession, KnowsWhetherTheDraftHadWhatTheTargetSaid) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  EXPECT_TRUE(session.wait().missed());  // nothing was prepared yet
  session.OnTail(MakeTail(3, 3, {1, 2}));
  EXPECT_TRUE(session.wait().missed());  // until the next commit
  session.BeginStep();
  session.FinishStep({1, 2, 3});
  EXPECT_FALSE(session.wait().missed());  // its token may still come
  session.OnTail(MakeTail(3, 5, {4}));
  EXPECT_TRUE(session.wait().missed());  // it came, and is another
  session.OnTail(MakeTail(6, 6, {4, 8}));
  session.BeginStep();
  session.FinishStep({4, 9});
  EXPECT_TRUE(session.wait().missed());
}

TEST(TargetSession, TakesTailTokensOfOneOrSeveralMessagesInOrder) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2})), Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(3, 5, {})), Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(3, 5, {3})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2, 3}));
}

TEST(TargetSession, SkipsRepeatedPositions) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.OnTail(MakeTail(3, 3, {1, 2}));
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2, 3})), Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(3, 4, {2})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2, 3}));
  const Verdict verdict = session.FinishStep({1, 2, 3, 4});
  EXPECT_EQ(verdict.verified, 3);
}

TEST(TargetSession, ARepeatedComparisonIsNotCountedTwice) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  Step(session, {1});  // open: the draft's token for position 3 is to come
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1})), Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1})), Outcome::kApplied);
  const Verdict verdict = Step(session, {2});
  EXPECT_EQ(verdict.verified, 1);
  EXPECT_EQ(verdict.accepted, 1);
}

TEST(TargetSession, AnOldEpochIsStale) {
  ExpectUnchangedBy(OpenTarget({0, 0, 8, 0}),
                    MakeTail(3, 3, {1}, StopMark::kEnd, /*epoch=*/0),
                    Outcome::kStale);
}

TEST(TargetSession, ABaseBelowTheLastMismatchIsStale) {
  TargetSession session = OpenTarget({1, 1, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  Step(session, {1, 9});  // mismatch at position 4: the correction is 9
  EXPECT_EQ(session.committed_length(), 5);
  ExpectUnchangedBy(session, MakeTail(3, 6, {4}, StopMark::kLead),
                    Outcome::kStale);
  ExpectUnchangedBy(session, MakeTail(4, 5, {4}, StopMark::kEnd),
                    Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(5, 5, {6})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), std::vector<int32_t>{6});
}

TEST(TargetSession, WithoutADraftATailIsStale) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.OnDraftLost();
  ExpectUnchangedBy(session, MakeTail(3, 3, {1}), Outcome::kStale);
}

TEST(TargetSession, AfterTheEndATailIsStale) {
  TargetSession session = OpenTarget({0, 0, 8, 0}, /*max_tokens=*/1);
  Step(session, {1});
  EXPECT_EQ(session.OnTail(MakeTail(4, 4, {1})), Outcome::kStale);
  EXPECT_EQ(session.CheckReady(0), Readiness::kFinished);
}

TEST(TargetSession, MalformedTailsChangeNothing) {
  TargetSession session = OpenTarget({2, 2, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}));
  for (const Tail& tail :
       {MakeTail(3, 5, {2}, StopMark::kEnd),     // a gap
        MakeTail(3, 1000, {}, StopMark::kEnd),   // a gap without tokens
        MakeTail(4, 4, {2}, StopMark::kEnd),     // a base ahead
        MakeTail(-1, 4, {2}, StopMark::kEnd),    // no base
        MakeTail(3, -1, {2, 2, 2, 2, 2}),        // no position
        MakeTail(3, 4, {2}, StopMark::kEnd, 2),  // an epoch ahead
        MakeTail(3, 4, std::vector<int32_t>(kMaxLead + 1, 2))}) {
    ExpectUnchangedBy(session, tail, Outcome::kMalformed);
  }
  // A draft that speaks in chains names no nodes.
  Tail tree = MakeTail(3, 3, {1, 2});
  tree.parents = {0, 1};
  tree.scores = {-1.0f, -2.0f};
  tree.first_node = 1;
  ExpectUnchangedBy(session, tree, Outcome::kMalformed);
  // As many as a draft may send are taken.
  EXPECT_EQ(session.OnTail(MakeTail(3, 4, std::vector<int32_t>(kMaxLead, 2))),
            Outcome::kApplied);
}

// Two children of the root, the less likely one with a child of its own.
Tail MakeTree() {
  Tail tree = MakeTail(3, 3, {1, 5, 2, 3});
  tree.parents = {0, 0, 1, 2};
  tree.scores = {-0.5f, -2.0f, -0.5f, -0.1f};
  tree.first_node = 1;
  return tree;
}

TEST(TargetSession, AStepOfATreeWalksItsBestPath) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  EXPECT_EQ(session.OnTail(MakeTree()), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(session.step().parents()[0], 0);
  EXPECT_EQ(session.step().parents()[1], 1);
  EXPECT_EQ(session.step().RowBehind(0, 1), 1);
  EXPECT_EQ(session.step().RowBehind(1, 2), 2);
  EXPECT_EQ(session.step().RowBehind(0, 5),
            absl::nullopt);  // no row of the step
  const Verdict verdict = session.FinishStep({1, 9});
  EXPECT_EQ(verdict.token_ids, (std::vector<int32_t>{1, 9}));
  EXPECT_EQ(verdict.matched, 1);
  EXPECT_EQ(verdict.path, std::vector<int32_t>{1});
  EXPECT_EQ(verdict.verified, 2);
  EXPECT_EQ(verdict.accepted, 1);
}

// The tree of MakeTree, for a session whose steps take so many nodes.
TargetSession OpenWithTree(const TargetPlan& plan, int num_slots) {
  TargetSession::Options options;
  options.text.prompt_length = 3;
  options.text.max_tokens = 100;
  options.plan = plan;
  options.epoch = 1;
  options.has_draft = true;
  options.num_slots = num_slots;
  TargetSession session(options, {10, 11, 12});
  EXPECT_EQ(session.OnTail(MakeTree()), Outcome::kApplied);
  return session;
}

TEST(TargetSession, RowsOfATreeAreItsLikeliestNodesThePathFirst) {
  const TargetPlan plan = {.window = 8, .tree_rows = 64};
  TargetSession session = OpenWithTree(plan, 64);
  ASSERT_TRUE(session.NextTree().has_value());
  EXPECT_EQ(session.NextTree()->max_depth, 8);
  EXPECT_EQ(session.NextTree()->most, 64);
  // 1, below it 2, then 5, below it 3.
  EXPECT_EQ(Rows(session.BeginTreeStep(3)), (std::vector<int32_t>{1, 2, 5}));
  EXPECT_EQ(session.step().path_length(), 2);
  EXPECT_EQ(Rows(session.step().parents()), (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(session.step().RowBehind(0, 5), 3);
  Verdict verdict = session.FinishStep({5, 3});
  EXPECT_EQ(verdict.token_ids, (std::vector<int32_t>{5, 3}));
  EXPECT_EQ(verdict.window, 3);
  EXPECT_EQ(verdict.matched, 1);
  EXPECT_EQ(verdict.path, std::vector<int32_t>{2});
  EXPECT_EQ(verdict.verified, 2);
  EXPECT_EQ(verdict.accepted, 2);  // 3 had a node
  EXPECT_EQ(verdict.branch_accepted, 1);
}

TEST(TargetSession, WhatMatchesOnTheBestPathIsNoBranch) {
  const TargetPlan plan = {.window = 8, .tree_rows = 64};
  TargetSession session = OpenWithTree(plan, 64);
  session.BeginTreeStep(3);
  const Verdict verdict = session.FinishStep({1, 2, 9});
  EXPECT_EQ(verdict.matched, 2);
  EXPECT_EQ(verdict.branch_accepted, 0);
}

TEST(TargetSession, RowsOfATreeKeepToThePlanAndTheSlots) {
  TargetSession deep = OpenWithTree({.window = 1, .tree_rows = 64}, 64);
  EXPECT_EQ(deep.NextTree()->max_depth, 1);
  EXPECT_EQ(Rows(deep.BeginTreeStep(64)), (std::vector<int32_t>{1, 5}));
  TargetSession many = OpenWithTree({.window = 8, .tree_rows = 3}, 2);
  EXPECT_EQ(many.NextTree()->most, 2);
  EXPECT_EQ(Rows(many.BeginTreeStep(64)), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(OpenWithTree({.window = 8, .tree_rows = 3}, 0).NextTree(),
            absl::nullopt);
  EXPECT_EQ(OpenWithTree({.window = 8}, 64).NextTree(), absl::nullopt);
}

TEST(TargetSession, AChainIsNoTreeOfRows) {
  TargetSession::Options options;
  options.text.prompt_length = 3;
  options.text.max_tokens = 100;
  options.plan = {.window = 8, .tree_rows = 64};
  options.epoch = 1;
  options.has_draft = true;
  options.num_slots = 64;
  TargetSession session(options, {10, 11, 12});
  session.OnTail(MakeTail(3, 3, {1, 2}));
  EXPECT_EQ(session.NextTree(), absl::nullopt);
  EXPECT_EQ(session.NextChain(), 2);
}

TEST(TargetSession, ASiblingThatWasNoRowIsAPreparedBranch) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  EXPECT_EQ(session.OnTail(MakeTree()), Outcome::kApplied);
  session.BeginStep();
  const Verdict verdict = session.FinishStep({5});
  EXPECT_EQ(verdict.matched, 0);
  EXPECT_TRUE(verdict.path.empty());
  EXPECT_EQ(verdict.verified, 1);
  EXPECT_EQ(verdict.accepted, 1);
  // It goes on below it at once: after a hit the gate is that of flow.
  session.OnPlan({8, 0, 8, 1000});
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), std::vector<int32_t>{3});
}

TEST(TargetSession, TheGateCountsTheDepthOfTheBestPath) {
  TargetSession session = OpenTarget({3, 0, 8, 1000});
  EXPECT_EQ(session.OnTail(MakeTree()), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);  // four nodes, two
  Tail more = MakeTail(3, 3, {4});
  more.parents = {3};
  more.scores = {-1.0f};
  more.first_node = 5;
  EXPECT_EQ(session.OnTail(more), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
}

TEST(TargetSession, TheGateCountsTokensBehindE1) {
  TargetSession session = OpenTarget({0, 2, 8, 1000});
  Step(session, {1});  // open
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnTail(MakeTail(3, 3, {1, 2}));  // e1 and one after it
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnTail(MakeTail(3, 5, {3}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
}

// A chunk's end opens the gate like a stop mark, but the draft goes on, and
// what it sends next does not close it again.
TEST(TargetSession, AChunksEndOpensTheGateUntilItIsVerified) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnTail(MakeTail(3, 4, {2}, StopMark::kChunk));
  session.OnTail(MakeTail(3, 5, {3}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  // All that is there is verified, and the chunk with it.
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2, 3}));
  session.OnTail(MakeTail(3, 6, {4}));
  session.FinishStep({1, 2, 3, 4});
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnTail(MakeTail(3, 7, {5}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
}

TEST(TargetSession, AChunkThatEndsDuringAStepIsSubmittedBehindIt) {
  TargetSession session = OpenTarget({0, 4, 8, 1000});
  session.BeginStep();
  session.OnTail(MakeTail(3, 3, {1}));
  session.OnTail(MakeTail(3, 4, {2}, StopMark::kChunk));
  session.OnTail(MakeTail(3, 5, {3}));
  session.FinishStep({1});  // e1 matches
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{2, 3}));
}

TEST(TargetSession, AChunksEndIsForgottenWithItsTail) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}, StopMark::kChunk));
  Step(session, {9});  // mismatch
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnTail(MakeTail(4, 4, {1, 2}, StopMark::kChunk));
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  session.OnDraftAttached(2, 4);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
}

// A window shorter than the chunk: it takes several steps, without a wait.
TEST(TargetSession, AChunkBehindTheWindowKeepsTheGateOpen) {
  TargetSession session = OpenTarget({4, 4, 2, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4}, StopMark::kChunk));
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2}));
  session.FinishStep({1, 2, 3});
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{4}));
}

// It compares e1 alone: there is no tail after it to submit.
TEST(TargetSession, AChunkThatHasBeenComparedOpensNothing) {
  TargetSession session = OpenTarget({0, 2, 8, 1000});
  Step(session, {1});  // open
  session.OnTail(MakeTail(3, 3, {1}, StopMark::kChunk));
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
}

// Marks of one token come in one order: an earlier one, repeated, says nothing.
TEST(TargetSession, ALateMarkOfTheSameTokenChangesNothing) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}, StopMark::kChunk));
  session.OnTail(MakeTail(3, 4, {}, StopMark::kLead));
  session.OnTail(MakeTail(3, 4, {}, StopMark::kPolicy));
  Step(session, {1, 2});
  // A silent draft does not speak again by that.
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.CheckReady(1000), Readiness::kReady);
  ExpectUnchangedBy(session, MakeTail(3, 3, {1}, StopMark::kChunk),
                    Outcome::kApplied);
  ExpectUnchangedBy(session, MakeTail(3, 4, {}, StopMark::kLead),
                    Outcome::kApplied);
  ExpectUnchangedBy(session, MakeTail(3, 4, {}, StopMark::kPolicy),
                    Outcome::kApplied);
}

TEST(TargetSession, EveryStopMarkOpensTheGate) {
  for (const StopMark stop :
       {StopMark::kLead, StopMark::kPolicy, StopMark::kEnd}) {
    TargetSession session = OpenTarget({4, 4, 8, 1000});
    session.OnTail(MakeTail(3, 3, {1}, stop));
    EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
    TargetSession other = OpenTarget({4, 4, 8, 1000});
    other.OnTail(MakeTail(3, 3, {}, stop));  // a notice without a token
    EXPECT_EQ(other.CheckReady(0), Readiness::kReady);
  }
}

TEST(TargetSession, ADraftThatGoesOnTakesItsStopMarkBack) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}, StopMark::kLead));
  session.OnTail(MakeTail(3, 4, {2}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
}

TEST(TargetSession, AStopMarkIsForgottenWhenAStepEndsExceptTheEnd) {
  for (const StopMark stop :
       {StopMark::kLead, StopMark::kPolicy, StopMark::kEnd}) {
    TargetSession session = OpenTarget({4, 4, 8, 1000});
    session.OnTail(MakeTail(3, 3, {1}, stop));
    Step(session, {1, 2});
    EXPECT_EQ(session.CheckReady(0), stop == StopMark::kEnd
                                         ? Readiness::kReady
                                         : Readiness::kWaitDraft);
  }
}

// Its main path ends there; on a branch it goes on.
TEST(TargetSession, ABranchForgetsTheEndOfTheMainPath) {
  const TargetPlan plan = {2, 2, 8, 1000, false, /*tree_rows=*/64};
  Tail end = MakeTail(3, 3, {7});
  end.parents = {3};  // behind 1, 2
  end.scores = {-0.1f};
  end.first_node = 5;
  end.stop = StopMark::kEnd;
  const auto open = [&] {
    TargetSession session = OpenWithTree(plan, 64);
    EXPECT_EQ(session.OnTail(end), Outcome::kApplied);
    EXPECT_TRUE(session.wait().has_stopped());
    return session;
  };
  TargetSession on_main = open();
  on_main.BeginTreeStep(0);
  on_main.FinishStep({1});
  EXPECT_TRUE(on_main.wait().has_stopped());

  TargetSession on_branch = open();
  on_branch.BeginTreeStep(0);
  on_branch.FinishStep({5});
  EXPECT_FALSE(on_branch.wait().has_stopped());
  EXPECT_FALSE(on_branch.wait().missed());
  EXPECT_EQ(on_branch.CheckReady(0), Readiness::kWaitDraft) << "3 is not two";

  // It is told later than the step ends.
  TargetSession late = OpenWithTree(plan, 64);
  late.BeginTreeStep(0);
  late.FinishStep({5});
  EXPECT_EQ(late.OnTail(MakeTail(3, 3, {}, StopMark::kEnd)), Outcome::kApplied);
  EXPECT_FALSE(late.wait().has_stopped());
  TargetSession right = OpenWithTree(plan, 64);
  right.BeginTreeStep(0);
  right.FinishStep({1});
  EXPECT_EQ(right.OnTail(end), Outcome::kApplied);
  EXPECT_TRUE(right.wait().has_stopped());
}

TEST(TargetSession, AMismatchForgetsEveryStopMark) {
  for (const StopMark stop :
       {StopMark::kLead, StopMark::kPolicy, StopMark::kEnd}) {
    TargetSession session = OpenTarget({4, 4, 8, 1000});
    session.OnTail(MakeTail(3, 3, {1}, stop));
    Step(session, {9});
    EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  }
}

TEST(TargetSession, AStopMarkBeforeTheLatestCommitCountsOnlyIfItIsTheEnd) {
  for (const StopMark stop :
       {StopMark::kLead, StopMark::kPolicy, StopMark::kEnd}) {
    TargetSession session = OpenTarget({0, 4, 8, 1000});
    Step(session, {1});  // committed 4, which the draft does not know
    session.OnTail(MakeTail(3, 3, {1, 2}, stop));
    EXPECT_EQ(session.CheckReady(0), stop == StopMark::kEnd
                                         ? Readiness::kReady
                                         : Readiness::kWaitDraft);
    session.OnTail(MakeTail(4, 5, {}, stop));
    EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  }
}

TEST(TargetSession, ARepeatedMessageDoesNotTakeAStopMarkBack) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}));
  session.OnTail(MakeTail(3, 4, {2}, StopMark::kLead));
  ExpectUnchangedBy(session, MakeTail(3, 3, {1}), Outcome::kApplied);
}

TEST(TargetSession, ARepeatedMessageDoesNotEndTheSilence) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}));
  Step(session, {1, 2});
  session.CheckReady(0);
  session.CheckReady(1000);
  ExpectUnchangedBy(session, MakeTail(3, 3, {1}), Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(5, 5, {}, StopMark::kLead)),
            Outcome::kApplied);
  ExpectUnchangedBy(session, MakeTail(5, 5, {}, StopMark::kLead),
                    Outcome::kApplied);
}

TEST(TargetSession, WaitsForNoMoreThanRemainingMinusOne) {
  TargetSession session = OpenTarget({5, 5, 8, 1000}, /*max_tokens=*/3);
  session.OnTail(MakeTail(3, 3, {1}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnTail(MakeTail(3, 4, {2, 3}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2}));
  session.FinishStep({1, 8});
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);  // one token remains
  EXPECT_TRUE(session.BeginStep().empty());
  EXPECT_EQ(session.FinishStep({2}).finish, FinishReason::kLength);
}

TEST(TargetSession, TheWindowLimitsAStepNotTheTail) {
  TargetSession session = OpenTarget({0, 0, 2, 0});
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4, 5}));
  EXPECT_EQ(Step(session, {1, 2, 3}).window, 2);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{4, 5}));
}

TEST(TargetSession, NoPlanMakesAStepLargerThanTheLargestWindow) {
  TargetSession session =
      OpenTarget({0, 0, 1000, 0}, /*max_tokens=*/500, /*unacknowledged=*/500);
  session.OnTail(MakeTail(3, 3, std::vector<int32_t>(kMaxLead, 1)));
  EXPECT_EQ(session.BeginStep().size(), static_cast<size_t>(kMaxWindow));
}

TEST(TargetSession, AWindowBelowTheGateStillOpensIt) {
  TargetSession session = OpenTarget({6, 6, 2, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2}));
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
}

TEST(TargetSession, StaysWithinTheUnacknowledgedLimit) {
  TargetSession session =
      OpenTarget({0, 0, 8, 0}, /*max_tokens=*/50, /*unacknowledged=*/4);
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4, 5, 8}));
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2, 3}));
  session.FinishStep({1, 2, 3, 4});
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitAcknowledge);
  EXPECT_EQ(session.wait().gate_deadline_ns(), absl::nullopt);
  session.OnAcknowledged(5);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), std::vector<int32_t>{5});
  session.FinishStep({5, 9});
  session.OnAcknowledged(4);  // an old one takes nothing back
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitAcknowledge);
  session.OnAcknowledged(1000);  // one that lies is cut to what there is
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_TRUE(session.BeginStep().empty());
}

TEST(TargetSession, ALostDraftOpensTheGateAndDegradesTheStep) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnDraftLost();
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_TRUE(Step(session, {1}).degraded);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
}

TEST(TargetSession, TheTailOfALostDraftIsStillVerified) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2}));
  session.OnDraftLost();
  EXPECT_EQ(Step(session, {1, 2, 3}).matched, 2);
}

TEST(TargetSession, TheTimerOpensTheGate) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}));
  EXPECT_EQ(session.CheckReady(10), Readiness::kWaitDraft);
  session.OnTail(MakeTail(3, 4, {2}));
  EXPECT_EQ(session.CheckReady(1009), Readiness::kWaitDraft);
  EXPECT_EQ(session.CheckReady(1010), Readiness::kReady);
  EXPECT_FALSE(Step(session, {1, 2, 3}).degraded);
  // A draft that has sent something meanwhile is waited for again.
  EXPECT_EQ(session.CheckReady(2000), Readiness::kWaitDraft);
  EXPECT_EQ(session.wait().gate_deadline_ns(), 3000);
}

TEST(TargetSession, ASilentDraftCostsOneTimeoutNotOneAStep) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.CheckReady(1000), Readiness::kReady);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Step(session, {1}).degraded);
    EXPECT_EQ(session.CheckReady(1001), Readiness::kReady);
  }
  // It speaks again: from now on it is waited for.
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(1002), Readiness::kWaitDraft);
}

// Branches that it had sent before are still verified, and close no gate.
TEST(TargetSession, AHungDraftIsSilentWhateverItHadSentBefore) {
  TargetSession session =
      OpenWithTree({/*after_mismatch=*/3, /*in_flow=*/3, 8, 1000,
                    /*holds_last_row=*/false, /*tree_rows=*/64},
                   64);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.CheckReady(1000), Readiness::kReady);
  session.BeginTreeStep(0);
  EXPECT_EQ(session.FinishStep({1}).accepted, 1);
  ASSERT_EQ(session.NextTree()->tree->nodes().size(), 1u);
  EXPECT_EQ(session.CheckReady(1001), Readiness::kReady) << "no second wait";
  EXPECT_EQ(Rows(session.BeginTreeStep(8)), std::vector<int32_t>{2});
  EXPECT_FALSE(session.FinishStep({2, 9}).degraded) << "it had rows of it";
  EXPECT_EQ(session.CheckReady(1002), Readiness::kReady);
  session.BeginTreeStep(8);
  EXPECT_TRUE(session.FinishStep({9}).degraded);
  // It speaks again.
  EXPECT_EQ(session.OnTail(MakeTail(7, 7, {}, StopMark::kNone)),
            Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(1003), Readiness::kWaitDraft);
}

TEST(TargetSession, AStaleMessageDoesNotEndTheSilence) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  session.CheckReady(0);
  session.CheckReady(1000);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1}, StopMark::kNone, 0)),
            Outcome::kStale);
  EXPECT_EQ(session.CheckReady(1001), Readiness::kReady);
}

TEST(TargetSession, ANewPlanAppliesToAnOpenWait) {
  TargetSession session = OpenTarget({4, 4, 8, 1000});
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  session.OnPlan({4, 4, 8, 5000});
  EXPECT_EQ(session.CheckReady(1000), Readiness::kWaitDraft);
  EXPECT_EQ(session.wait().gate_deadline_ns(), 5000);
  session.OnPlan({0, 0, 8, 5000});
  EXPECT_EQ(session.CheckReady(1001), Readiness::kReady);
}

TEST(TargetSession, AReopenedSessionGoesOnWhereItWas) {
  TargetSession::Options options;
  options.text.prompt_length = 2;
  options.text.max_tokens = 3;
  options.plan.window = 8;
  TargetSession session(options, {10, 11, 12});
  EXPECT_EQ(session.text().generated(), 1);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Step(session, {13}).base_length, 3);
  EXPECT_EQ(Step(session, {14}).finish, FinishReason::kLength);
}

TEST(TargetSession, ASessionReopenedBehindItsEndIsFinished) {
  TargetSession::Options options;
  options.text.prompt_length = 2;
  options.text.max_tokens = 3;
  options.text.eos_ids = {9};
  options.text.stop_ids = {8};
  EXPECT_TRUE(TargetSession(options, {9, 9, 1, 2, 3}).finished());
  EXPECT_TRUE(TargetSession(options, {1, 2, 9}).finished());
  EXPECT_TRUE(TargetSession(options, {1, 2, 8}).finished());
  // An end token in the prompt ends nothing.
  EXPECT_FALSE(TargetSession(options, {1, 9}).finished());
  EXPECT_FALSE(TargetSession(options, {9, 8, 1}).finished());
}

}  // namespace
}  // namespace nacre::speculation
