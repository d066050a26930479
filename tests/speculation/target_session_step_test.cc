// What a target step decides: the verdict, its counts, flow, open and mismatch,
// and drafts that come and go.

#include <vector>

#include "gtest/gtest.h"
#include "speculation/target_session.h"
#include "tests/speculation/session_builders.h"

namespace nacre::speculation {
namespace {

using Outcome = TargetSession::TailOutcome;
using Readiness = TargetSession::Readiness;
using Ids = std::vector<int32_t>;

// Distinct gates tell the states apart: one token is enough in flow and open,
// three after a mismatch.
constexpr TargetPlan kTellStates = {3, 1, 8, 1000};

TEST(TargetStep, WithoutATailItCommitsOneToken) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  const Verdict verdict = Step(session, {1});
  EXPECT_EQ(verdict.base_length, 3);
  EXPECT_EQ(verdict.token_ids, Ids{1});
  EXPECT_EQ(verdict.window, 0);
  EXPECT_EQ(verdict.matched, 0);
  EXPECT_EQ(verdict.verified, 0);
  EXPECT_EQ(verdict.accepted, 0);
  EXPECT_EQ(verdict.finish, FinishReason::kNone);
  EXPECT_FALSE(verdict.degraded);
  EXPECT_EQ(session.committed(), (Ids{10, 11, 12, 1}));
  EXPECT_EQ(session.kv_length(), 3);
}

TEST(TargetStep, CommitsTheMatchingPrefixAndTheFirstTokenThatDiffers) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4}));
  const Verdict verdict = Step(session, {1, 2, 9});  // the rest is left out
  EXPECT_EQ(verdict.token_ids, (Ids{1, 2, 9}));
  EXPECT_EQ(verdict.window, 4);
  EXPECT_EQ(verdict.matched, 2);
  EXPECT_EQ(verdict.verified, 3);
  EXPECT_EQ(verdict.accepted, 2);
  EXPECT_EQ(session.kv_length(), 5);
}

TEST(TargetStep, DoesNotLookBehindTheFirstThatDiffers) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  EXPECT_EQ(Step(session, {9, 2, 3, 7}).token_ids, Ids{9});
  EXPECT_FALSE(session.finished());
}

TEST(TargetStep, AMismatchDropsTheTail) {
  TargetSession session = OpenTarget(kTellStates);
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4}));
  Step(session, {1, 9});
  EXPECT_EQ(session.OnTail(MakeTail(5, 5, {4, 5})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.OnTail(MakeTail(5, 7, {6})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_EQ(Rows(session.BeginStep()), (Ids{4, 5, 6}));
}

TEST(TargetStep, AnEqualE1KeepsTheTailBehindIt) {
  TargetSession session = OpenTarget({0, 1, 2, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4}));
  const Verdict verdict = Step(session, {1, 2, 3});
  EXPECT_EQ(verdict.matched, 2);
  EXPECT_EQ(verdict.verified, 3);  // e1 included
  EXPECT_EQ(verdict.accepted, 3);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  // The draft goes on without having heard of the verdict.
  EXPECT_EQ(session.OnTail(MakeTail(3, 7, {5})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (Ids{4, 5}));
}

TEST(TargetStep, ADifferentE1IsAMismatch) {
  TargetSession session = OpenTarget({3, 1, 2, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4}));
  const Verdict verdict = Step(session, {1, 2, 9});
  EXPECT_EQ(verdict.matched, 2);
  EXPECT_EQ(verdict.verified, 3);
  EXPECT_EQ(verdict.accepted, 2);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.OnTail(MakeTail(5, 7, {5})), Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(6, 6, {5})), Outcome::kApplied);
}

TEST(TargetStep, ALateE1IsComparedOnArrivalAndCountedInTheNextVerdict) {
  TargetSession session = OpenTarget(kTellStates);
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  const Verdict first = Step(session, {1, 2, 3, 4});
  EXPECT_EQ(first.verified, 3);
  EXPECT_EQ(session.OnTail(MakeTail(3, 6, {4})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.OnTail(MakeTail(3, 7, {5})), Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);  // the flow gate
  const Verdict second = Step(session, {9});
  EXPECT_EQ(second.verified, 2);
  EXPECT_EQ(second.accepted, 1);
}

TEST(TargetStep, ALateE1ThatDiffersIsAMismatch) {
  TargetSession session = OpenTarget({3, 0, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  Step(session, {1, 2, 3, 4});
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);  // open: the flow gate
  EXPECT_EQ(session.OnTail(MakeTail(3, 6, {9, 5}, StopMark::kEnd)),
            Outcome::kMismatch);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.OnTail(MakeTail(6, 8, {5})), Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(7, 7, {5, 6, 5})), Outcome::kApplied);
  const Verdict verdict = Step(session, {5, 6});
  EXPECT_EQ(verdict.verified, 1 + 2);
  EXPECT_EQ(verdict.accepted, 0 + 2);
}

TEST(TargetStep, SeveralTokensMayAwaitTheirComparison) {
  TargetSession session = OpenTarget({3, 0, 8, 1000});
  session.OnDraftLost();  // opens the first gate
  session.OnDraftAttached(2, 3);
  session.OnPlan({0, 0, 8, 1000});
  for (const int32_t id : {1, 2, 3}) Step(session, {id});
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(3, 5, {3, 4}, StopMark::kNone, 2)),
            Outcome::kApplied);
  const Verdict verdict = Step(session, {4, 5});
  EXPECT_EQ(verdict.window, 1);
  EXPECT_EQ(verdict.verified, 4);
  EXPECT_EQ(verdict.accepted, 4);
}

TEST(TargetStep, AMismatchAmongSeveralPendingDropsTheRestOfTheMessage) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  for (const int32_t id : {1, 2, 3}) Step(session, {id});
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 9, 3, 4})), Outcome::kMismatch);
  // The draft must go on after the correction, which stands at position 4.
  EXPECT_EQ(session.OnTail(MakeTail(4, 5, {3})), Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(5, 5, {3, 4})), Outcome::kApplied);
  const Verdict verdict = Step(session, {4, 5});
  EXPECT_EQ(verdict.verified, 2 + 1 + 1);
  EXPECT_EQ(verdict.accepted, 1 + 1 + 1);
}

TEST(TargetStep, TokensThatTheDraftHadFromUsAreNotCompared) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  for (const int32_t id : {1, 2, 3}) Step(session, {id});
  // It knew position 3 and 4 before it drafted position 5.
  EXPECT_EQ(session.OnTail(MakeTail(5, 5, {3, 4})), Outcome::kApplied);
  const Verdict verdict = Step(session, {4, 5});
  EXPECT_EQ(verdict.verified, 2);
}

TEST(TargetStep, E1MayArriveWhileTheNextStepRuns) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  Step(session, {1});
  EXPECT_TRUE(session.BeginStep().empty());
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2, 3})), Outcome::kApplied);
  const Verdict verdict = session.FinishStep({2});
  EXPECT_EQ(verdict.verified, 2);  // e1 of both steps
  EXPECT_EQ(verdict.accepted, 2);
  EXPECT_EQ(Rows(session.BeginStep()), Ids{3});
}

TEST(TargetStep, AMismatchMayArriveWhileTheNextStepRuns) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  Step(session, {1});
  session.BeginStep();
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {9, 2})), Outcome::kMismatch);
  const Verdict verdict = session.FinishStep({2});
  EXPECT_EQ(verdict.verified, 1);
  EXPECT_EQ(verdict.accepted, 0);
  EXPECT_EQ(session.OnTail(MakeTail(4, 4, {2, 3})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), Ids{3});
}

TEST(TargetStep, ATailThatGrowsLeavesTheRowsOfTheRunningStepAlone) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2}));
  const absl::Span<const int32_t> rows = session.BeginStep();
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(session.OnTail(MakeTail(3, 5 + i, {5})), Outcome::kApplied);
  }
  EXPECT_EQ(Rows(rows), (Ids{1, 2}));
  EXPECT_EQ(session.FinishStep({1, 2, 5}).verified, 3);
}

TEST(TargetStep, AnEndTokenInTheMatchingPrefixCutsTheRest) {
  for (const int32_t end : {7, 6}) {
    TargetSession session = OpenTarget({0, 0, 8, 0});
    session.OnTail(MakeTail(3, 3, {1, end, 3, 4}));
    const Verdict verdict = Step(session, {1, end, 3, 4, 5});
    EXPECT_EQ(verdict.token_ids, (Ids{1, end}));
    EXPECT_EQ(verdict.matched, 2);
    EXPECT_EQ(verdict.verified, 2);
    EXPECT_EQ(verdict.accepted, 2);
    EXPECT_EQ(verdict.finish,
              end == 7 ? FinishReason::kEos : FinishReason::kStop);
    EXPECT_EQ(session.CheckReady(0), Readiness::kFinished);
    EXPECT_EQ(session.kv_length(), 4);
  }
}

TEST(TargetStep, AnEndTokenThatDiffersFromTheTailEnds) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.OnTail(MakeTail(3, 3, {1, 2}));
  const Verdict verdict = Step(session, {1, 7});
  EXPECT_EQ(verdict.token_ids, (Ids{1, 7}));
  EXPECT_EQ(verdict.finish, FinishReason::kEos);
  EXPECT_EQ(verdict.verified, 2);
  EXPECT_EQ(verdict.accepted, 1);
}

TEST(TargetStep, AnEndTokenBehindTheLastRowEndsBeforeE1IsCounted) {
  TargetSession session = OpenTarget({0, 0, 2, 0});
  session.OnTail(MakeTail(3, 3, {1, 2, 7, 4}));
  const Verdict verdict = Step(session, {1, 2, 7});
  EXPECT_EQ(verdict.token_ids, (Ids{1, 2, 7}));
  EXPECT_EQ(verdict.finish, FinishReason::kEos);
  EXPECT_EQ(verdict.verified, 2);
  EXPECT_EQ(verdict.accepted, 2);
}

TEST(TargetStep, AnEndTokenThatTheTargetDidNotDrawEndsNothing) {
  TargetSession session = OpenTarget({0, 0, 8, 0});
  session.OnTail(MakeTail(3, 3, {7}, StopMark::kEnd));
  EXPECT_EQ(Step(session, {1}).finish, FinishReason::kNone);
}

TEST(TargetStep, MaxTokensEndsWithLengthUnlessTheLastTokenIsAnEnd) {
  TargetSession session = OpenTarget({0, 0, 8, 0}, /*max_tokens=*/2);
  session.OnTail(MakeTail(3, 3, {1, 2, 3, 4}));
  const Verdict verdict = Step(session, {1, 2});
  EXPECT_EQ(verdict.window, 1);
  EXPECT_EQ(verdict.token_ids, (Ids{1, 2}));
  EXPECT_EQ(verdict.finish, FinishReason::kLength);
  EXPECT_EQ(session.text().generated(), 2);
  TargetSession other = OpenTarget({0, 0, 8, 0}, /*max_tokens=*/2);
  other.OnTail(MakeTail(3, 3, {1}));
  EXPECT_EQ(Step(other, {1, 7}).finish, FinishReason::kEos);
}

TEST(TargetStep, ANewDraftDropsTheTailOfTheOld) {
  TargetSession session = OpenTarget(kTellStates);
  session.OnTail(MakeTail(3, 3, {1, 2}, StopMark::kEnd));
  session.OnDraftAttached(2, 3);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  EXPECT_EQ(session.OnTail(MakeTail(3, 5, {3})), Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {4, 5, 6}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (Ids{4, 5, 6}));
}

TEST(TargetStep, AnEpochThatIsNotNewAttachesNothing) {
  TargetSession session = OpenTarget({1, 1, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1}));
  session.OnDraftAttached(1, 3);
  session.OnDraftAttached(0, 3);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  session.OnDraftLost();
  session.OnDraftAttached(1, 3);  // repeated, after its draft was lost
  EXPECT_EQ(session.OnTail(MakeTail(3, 4, {2})), Outcome::kStale);
}

TEST(TargetStep, ANewDraftMayBeOpenedBehindWhatIsCommitted) {
  TargetSession session = OpenTarget({3, 0, 8, 1000});
  session.OnDraftLost();
  for (const int32_t id : {1, 2, 3}) Step(session, {id});
  session.OnDraftAttached(2, 4);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1}, StopMark::kNone, 2)),
            Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(4, 4, {2, 3}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(4, 6, {4}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);
  const Verdict verdict = Step(session, {4, 5});
  EXPECT_EQ(verdict.verified, 3);
  EXPECT_EQ(verdict.accepted, 3);
  EXPECT_FALSE(verdict.degraded);
}

TEST(TargetStep, AnOpenedLengthBehindTheCommittedIsCut) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  session.OnDraftAttached(2, 1000);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1}, StopMark::kNone, 2)),
            Outcome::kApplied);
}

TEST(TargetStep, ADraftAttachedWhileAStepRunsMaySpeakAtOnce) {
  TargetSession session = OpenTarget({3, 3, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  const absl::Span<const int32_t> rows = session.BeginStep();
  session.OnDraftLost();
  session.OnDraftAttached(2, 3);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(session.OnTail(MakeTail(3, 5, {3, 4, 5}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(Rows(rows), (Ids{1, 2, 3}));
  const Verdict verdict = session.FinishStep({1, 2, 3, 4});
  EXPECT_EQ(verdict.matched, 3);
  EXPECT_EQ(verdict.verified, 4);  // of the new draft; the old one's is dropped
  EXPECT_EQ(verdict.accepted, 4);
  EXPECT_EQ(Rows(session.BeginStep()), Ids{5});
}

TEST(TargetStep, AStepOnTheOldTailIsComparedWithTheNewDraft) {
  TargetSession session = OpenTarget({3, 0, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  session.BeginStep();
  session.OnDraftAttached(2, 3);
  session.OnTail(MakeTail(3, 3, {1, 9, 3, 4, 5}, StopMark::kEnd, 2));
  const Verdict verdict = session.FinishStep({1, 2, 3, 4});
  EXPECT_EQ(verdict.token_ids, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(verdict.verified, 2);
  EXPECT_EQ(verdict.accepted, 1);
  EXPECT_EQ(session.CheckReady(0), Readiness::kWaitDraft);  // a mismatch
  // Built on the correction at position 4; positions 5 and 6 are compared.
  EXPECT_EQ(session.OnTail(MakeTail(4, 5, {3}, StopMark::kNone, 2)),
            Outcome::kStale);
  EXPECT_EQ(session.OnTail(MakeTail(7, 7, {5}, StopMark::kNone, 2)),
            Outcome::kApplied);
}

TEST(TargetStep, ANewDraftThatIsShorterThanTheStepIsOpen) {
  TargetSession session = OpenTarget({3, 0, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  session.BeginStep();
  session.OnDraftAttached(2, 3);
  session.OnTail(MakeTail(3, 3, {1, 2}, StopMark::kNone, 2));
  const Verdict verdict = session.FinishStep({1, 2, 3, 4});
  EXPECT_EQ(verdict.verified, 2);
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);  // open: the flow gate
  EXPECT_EQ(session.OnTail(MakeTail(3, 5, {3, 4, 5}, StopMark::kNone, 2)),
            Outcome::kApplied);
  EXPECT_EQ(Step(session, {5, 6}).verified, 3);
}

TEST(TargetStep, ADraftLostAfterItWasAttachedIsLost) {
  TargetSession session = OpenTarget({3, 3, 8, 1000});
  session.OnTail(MakeTail(3, 3, {1, 2, 3}));
  session.BeginStep();
  session.OnDraftAttached(2, 3);
  session.OnDraftLost();
  session.FinishStep({9});
  EXPECT_EQ(session.CheckReady(0), Readiness::kReady);
  EXPECT_TRUE(Step(session, {1}).degraded);
}

TEST(TargetStep, StepsDegradedAsTheyBegan) {
  TargetSession session = OpenTarget({0, 0, 8, 1000});
  session.BeginStep();
  session.OnDraftLost();
  EXPECT_FALSE(session.FinishStep({1}).degraded);
  session.BeginStep();
  session.OnDraftAttached(2, 4);
  EXPECT_TRUE(session.FinishStep({2}).degraded);
  EXPECT_FALSE(Step(session, {3}).degraded);
}

}  // namespace
}  // namespace nacre::speculation
