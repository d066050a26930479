// The target's state machine under the ratio test: what tails must carry, which
// draft token each row judges, and when the last row is held.

#include <vector>

#include "gtest/gtest.h"
#include "speculation/target_session.h"
#include "tests/speculation/session_builders.h"

namespace nacre::speculation {
namespace {

using Outcome = TargetSession::TailOutcome;
using Readiness = TargetSession::Readiness;

constexpr int64_t kTimeout = 1000;

TargetSession OpenRatio(int window, bool holds = true) {
  TargetSession::Options options;
  options.text.prompt_length = 3;
  options.text.max_tokens = 100;
  options.text.eos_ids = {7};
  options.plan = {0, 0, window, kTimeout, holds};
  options.epoch = 1;
  options.has_draft = true;
  options.verification = Verification::kRatio;
  return TargetSession(options, {10, 11, 12});
}

Tail RatioTail(int base_length, int first_position, std::vector<int32_t> ids,
               StopMark stop = StopMark::kNone, uint32_t epoch = 1) {
  Tail tail = MakeTail(base_length, first_position, ids, stop, epoch);
  for (const int32_t id : ids) {
    tail.distributions.push_back({{id, id + 100}, {3.0f, 1.0f}});
  }
  return tail;
}

void ExpectDrafted(const TargetSession& session, int row, int32_t token_id) {
  const auto drafted = session.DraftedAt(row);
  ASSERT_TRUE(drafted.has_value()) << "row " << row;
  EXPECT_EQ(drafted->token_id, token_id);
  EXPECT_EQ(drafted->distribution->token_ids.front(), token_id);
}

TEST(TargetSessionRatio, TakesNoTokenWithoutWhatItWasDrawnFrom) {
  TargetSession session = OpenRatio(4);
  EXPECT_EQ(session.OnTail(MakeTail(3, 3, {1, 2})), Outcome::kMalformed);
  Tail tail = RatioTail(3, 3, {1, 2});
  tail.distributions.pop_back();
  EXPECT_EQ(session.OnTail(tail), Outcome::kMalformed);
  tail = RatioTail(3, 3, {1, 2});
  tail.distributions[1].token_ids = {5, 6};
  EXPECT_EQ(session.OnTail(tail), Outcome::kMalformed);
  tail = RatioTail(3, 3, {1, 2});
  tail.distributions[0].weights[1] = -1.0f;
  EXPECT_EQ(session.OnTail(tail), Outcome::kMalformed);
  session.BeginStep();
  EXPECT_FALSE(session.DraftedAt(0).has_value());
  // A message that says nothing but that the draft has stopped has none.
  EXPECT_EQ(session.OnTail(RatioTail(3, 3, {}, StopMark::kLead)),
            Outcome::kApplied);
}

TEST(TargetSessionRatio, JudgesEachRowAndTheTokenBehindThem) {
  TargetSession session = OpenRatio(2);
  EXPECT_EQ(session.OnTail(RatioTail(3, 3, {1, 2, 3, 4})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{1, 2}));
  ExpectDrafted(session, 0, 1);
  ExpectDrafted(session, 1, 2);
  ExpectDrafted(session, 2, 3);
  EXPECT_FALSE(session.HoldsLastRow(5)) << "there is a token to judge";
  const Verdict verdict = session.FinishStep(std::vector<int32_t>{1, 2, 3});
  EXPECT_EQ(verdict.token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(verdict.matched, 2);
  EXPECT_EQ(verdict.verified, 3);
  EXPECT_EQ(verdict.accepted, 3);
  // What is after stays, with its distribution.
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{4}));
  ExpectDrafted(session, 0, 4);
}

TEST(TargetSessionRatio, HoldsTheLastRowUntilTheNextTokenIsThere) {
  TargetSession session = OpenRatio(2);
  session.OnTail(RatioTail(3, 3, {1, 2}));
  session.BeginStep();
  EXPECT_TRUE(session.HoldsLastRow(10));
  EXPECT_EQ(session.wait().last_row_deadline_ns(), 10 + kTimeout);
  EXPECT_TRUE(session.HoldsLastRow(500));
  EXPECT_EQ(session.wait().last_row_deadline_ns(), 10 + kTimeout)
      << "since it began";
  session.OnTail(RatioTail(3, 5, {3}));
  EXPECT_FALSE(session.HoldsLastRow(501));
  EXPECT_EQ(session.wait().last_row_deadline_ns(), absl::nullopt);
  ExpectDrafted(session, 2, 3);
}

// What is lost with a target must not depend on whether it was accepted.
TEST(TargetSessionRatio, TellsWhatItAcceptedBeforeItHolds) {
  TargetSession session = OpenRatio(2);
  session.OnTail(RatioTail(3, 3, {1, 2}));
  session.BeginStep();
  ASSERT_TRUE(session.HoldsLastRow(10));
  const auto accepted = session.CommitAccepted();
  ASSERT_TRUE(accepted.has_value());
  EXPECT_TRUE(accepted->holds_last_row());
  EXPECT_EQ(accepted->base_length, 3);
  EXPECT_EQ(accepted->token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(accepted->window, 2);
  EXPECT_EQ(accepted->matched, 2);
  EXPECT_EQ(accepted->verified, 2);
  EXPECT_EQ(accepted->accepted, 2);
  EXPECT_EQ(accepted->finish, FinishReason::kNone);
  EXPECT_EQ(session.committed(), (std::vector<int32_t>{10, 11, 12, 1, 2}));
  EXPECT_TRUE(session.step().running());
  EXPECT_TRUE(session.HoldsLastRow(500));
  EXPECT_EQ(session.wait().last_row_deadline_ns(), 10 + kTimeout)
      << "since it began";
  EXPECT_EQ(session.CommitAccepted(), absl::nullopt) << "once";
  EXPECT_FALSE(session.DraftedAt(0).has_value());

  session.OnTail(RatioTail(3, 5, {3, 4}));
  EXPECT_FALSE(session.HoldsLastRow(501));
  ExpectDrafted(session, 0, 3);
  const Verdict last = session.FinishStep(std::vector<int32_t>{3});
  EXPECT_FALSE(last.holds_last_row());
  EXPECT_EQ(last.base_length, 5);
  EXPECT_EQ(last.token_ids, (std::vector<int32_t>{3}));
  EXPECT_EQ(last.window, 0);
  EXPECT_EQ(last.matched, 0);
  EXPECT_EQ(last.verified, 1);
  EXPECT_EQ(last.accepted, 1);
  // The tail after it stays.
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{4}));
}

TEST(TargetSessionRatio, ALoneRowHasNothingToTell) {
  TargetSession session = OpenRatio(2);
  session.BeginStep();
  ASSERT_TRUE(session.HoldsLastRow(10));
  EXPECT_EQ(session.CommitAccepted(), absl::nullopt);
  EXPECT_EQ(session.committed_length(), 3);
}

// A draft at its lead goes on once it has heard what was accepted.
TEST(TargetSessionRatio, ALeadThatTheAcceptedTokensFreeEndsNoHold) {
  for (const int base_length : {3, 5}) {
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}));
    session.BeginStep();
    ASSERT_TRUE(session.HoldsLastRow(10));
    session.CommitAccepted();
    session.OnTail(RatioTail(base_length, 5, {}, StopMark::kLead));
    EXPECT_EQ(session.HoldsLastRow(11), base_length == 3);
  }
}

// Another draft is told them as well: it goes on after them.
TEST(TargetSessionRatio, HoldsForAnotherDraftWhateverThatHasDrawnBefore) {
  for (const bool same : {true, false}) {
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}));
    session.BeginStep();
    ASSERT_TRUE(session.HoldsLastRow(10));
    session.CommitAccepted();
    session.OnDraftAttached(/*epoch=*/2, /*opened_length=*/3);
    EXPECT_TRUE(session.HoldsLastRow(11));
    const std::vector<int32_t> tokens = {1, same ? 2 : 9, 3};
    EXPECT_EQ(session.OnTail(RatioTail(3, 3, tokens, StopMark::kNone, 2)),
              same ? Outcome::kApplied : Outcome::kMismatch);
    EXPECT_EQ(session.HoldsLastRow(12), !same);
    if (!same) {
      EXPECT_FALSE(session.DraftedAt(0).has_value());
      session.OnTail(RatioTail(5, 5, {3}, StopMark::kNone, 2));
      EXPECT_FALSE(session.HoldsLastRow(13));
    }
    ExpectDrafted(session, 0, 3);
    const Verdict last = session.FinishStep(std::vector<int32_t>{3});
    EXPECT_EQ(last.verified, 3);
    EXPECT_EQ(last.accepted, same ? 3 : 2);
  }
}

TEST(TargetSessionRatio, DoesNotHoldWhereThePlanDoesNot) {
  TargetSession session = OpenRatio(2, /*holds=*/false);
  session.OnTail(RatioTail(3, 3, {1, 2}));
  session.BeginStep();
  EXPECT_FALSE(session.HoldsLastRow(10));
  EXPECT_FALSE(session.DraftedAt(2).has_value());
}

TEST(TargetSessionRatio, LetsGoWhereTheDraftStopsIsLostOrIsSilent) {
  for (const StopMark stop :
       {StopMark::kLead, StopMark::kPolicy, StopMark::kEnd}) {
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}));
    session.BeginStep();
    EXPECT_TRUE(session.HoldsLastRow(10));
    session.OnTail(RatioTail(3, 5, {}, stop));
    EXPECT_FALSE(session.HoldsLastRow(11)) << static_cast<int>(stop);
  }
  {
    // A chunk's end is no stop: the draft goes on.
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}, StopMark::kChunk));
    session.BeginStep();
    EXPECT_TRUE(session.HoldsLastRow(10));
  }
  {
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}));
    session.BeginStep();
    EXPECT_TRUE(session.HoldsLastRow(10));
    session.OnDraftLost();
    EXPECT_FALSE(session.HoldsLastRow(11));
  }
  {
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}));
    session.BeginStep();
    EXPECT_TRUE(session.HoldsLastRow(10));
    EXPECT_TRUE(session.HoldsLastRow(9 + kTimeout));
    EXPECT_FALSE(session.HoldsLastRow(10 + kTimeout));
    // It costs one timeout, not one a step.
    session.FinishStep(std::vector<int32_t>{1, 2, 50});
    session.BeginStep();
    EXPECT_FALSE(session.HoldsLastRow(3000));
    session.FinishStep(std::vector<int32_t>{51});
    // Until it is heard of again.
    session.OnTail(RatioTail(3, 5, {50, 51, 52}));
    session.BeginStep();
    EXPECT_TRUE(session.HoldsLastRow(4000));
  }
}

TEST(TargetSessionRatio, JudgesAnotherDraftsTokenOnlyBehindTheSameRows) {
  for (const bool same : {true, false}) {
    TargetSession session = OpenRatio(2);
    session.OnTail(RatioTail(3, 3, {1, 2}));
    session.BeginStep();
    session.OnDraftAttached(/*epoch=*/2, /*opened_length=*/3);
    EXPECT_TRUE(session.HoldsLastRow(10));
    const std::vector<int32_t> tokens = {1, same ? 2 : 9, 3};
    EXPECT_EQ(session.OnTail(RatioTail(3, 3, tokens, StopMark::kNone, 2)),
              Outcome::kApplied);
    EXPECT_FALSE(session.HoldsLastRow(11));
    EXPECT_EQ(session.DraftedAt(2).has_value(), same);
    ExpectDrafted(session, 1, 2);  // the step's own rows stay
    const Verdict verdict = session.FinishStep(std::vector<int32_t>{1, 2, 3});
    EXPECT_EQ(verdict.accepted, same ? 3 : 1);
  }
}

TEST(TargetSessionRatio, KnowsItsEnds) {
  const TargetSession session = OpenRatio(2);
  EXPECT_TRUE(session.text().IsEnd(7));
  EXPECT_FALSE(session.text().IsEnd(8));
}

// A token of the target's own is compared with the draft's when that arrives,
// as in exact match.
TEST(TargetSessionRatio, ComparesItsOwnTokenWithALateOne) {
  TargetSession session = OpenRatio(2, /*holds=*/false);
  session.OnTail(RatioTail(3, 3, {1}));
  session.BeginStep();
  session.FinishStep(std::vector<int32_t>{1, 40});
  EXPECT_EQ(session.OnTail(RatioTail(3, 4, {40, 41})), Outcome::kApplied);
  EXPECT_EQ(Rows(session.BeginStep()), (std::vector<int32_t>{41}));
  ExpectDrafted(session, 0, 41);
}

}  // namespace
}  // namespace nacre::speculation
