#include "speculation/draft_session.h"

#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using Outcome = DraftSession::CommitOutcome;
using Ids = std::vector<int32_t>;

DraftSession Open(DraftPlan plan, int max_length = 100) {
  DraftSession::Options options;
  options.epoch = 4;
  options.max_length = max_length;
  options.end_ids = {7, 8};
  options.plan = plan;
  return DraftSession(options, {10, 11, 12});
}

void Draft(DraftSession& session, const Ids& token_ids) {
  for (const int32_t id : token_ids) session.OnDrafted(id);
}

TEST(DraftSession, AMessageTellsWhereItsTokenStands) {
  DraftSession session = Open({4, 4});
  const Tail first = session.OnDrafted(1);
  EXPECT_EQ(first.epoch, 4u);
  EXPECT_EQ(first.base_length, 3);
  EXPECT_EQ(first.first_position, 3);
  EXPECT_EQ(first.token_ids, Ids{1});
  EXPECT_EQ(first.stop, StopMark::kNone);
  EXPECT_EQ(session.OnDrafted(2).first_position, 4);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 2}));
  EXPECT_EQ(session.committed_length(), 3);
  EXPECT_EQ(session.kv_limit(), 4);
}

TEST(DraftSession, ACommitThatMatchesKeepsEverything) {
  DraftSession session = Open({4, 4});
  Draft(session, {1, 2, 3});
  EXPECT_EQ(session.OnCommit({3, {1, 2}}), Outcome::kMatched);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 2, 3}));
  EXPECT_EQ(session.committed_length(), 5);
  EXPECT_EQ(session.kept_length(), 6);
  EXPECT_EQ(session.kv_limit(), 5);
}

TEST(DraftSession, AMismatchKeepsTheCommonPrefix) {
  DraftSession session = Open({8, 8});
  Draft(session, {1, 2, 3, 4});
  EXPECT_EQ(session.OnCommit({3, {1, 9}}), Outcome::kMismatch);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 9}));
  EXPECT_EQ(session.committed_length(), 5);
  EXPECT_EQ(session.kept_length(), 4);
  EXPECT_EQ(session.kv_limit(), 4);
  EXPECT_EQ(session.OnDrafted(5).base_length, 5);
}

TEST(DraftSession, AMismatchInTheMiddleOfACommitKeepsLessThanTheKvLimit) {
  // The verdict was on the tail of another draft.
  DraftSession session = Open({8, 8});
  Draft(session, {1, 2, 3, 4, 5});
  EXPECT_EQ(session.OnCommit({3, {1, 9, 3, 4}}), Outcome::kMismatch);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 9, 3, 4}));
  EXPECT_EQ(session.kept_length(), 4);
  EXPECT_EQ(session.kv_limit(), 6);
}

TEST(DraftSession, ADraftThatIsBehindCatchesUp) {
  DraftSession session = Open({8, 8});
  Draft(session, {1});
  EXPECT_EQ(session.OnCommit({3, {1, 2, 3}}), Outcome::kMatched);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 2, 3}));
  EXPECT_EQ(session.kept_length(), 4);
  const Tail tail = session.OnDrafted(4);
  EXPECT_EQ(tail.base_length, 6);
  EXPECT_EQ(tail.first_position, 6);
}

TEST(DraftSession, RepeatedCommitsChangeNothing) {
  DraftSession session = Open({2, 8});
  Draft(session, {1, 2});
  session.OnCommit({3, {9}});
  Draft(session, {1, 2});
  EXPECT_EQ(session.OnCommit({3, {9}}), Outcome::kRepeated);
  EXPECT_EQ(session.OnCommit({3, {}}), Outcome::kRepeated);
  EXPECT_EQ(session.OnCommit({0, {1, 1, 1}}), Outcome::kRepeated);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 9, 1, 2}));
  EXPECT_FALSE(session.WantsStep());  // still the lead after a mismatch
}

TEST(DraftSession, ACommitThatOverlapsAppliesItsNewPart) {
  DraftSession session = Open({8, 8});
  session.OnCommit({3, {1}});
  // What is known is skipped even if it lies.
  EXPECT_EQ(session.OnCommit({2, {99, 99, 2}}), Outcome::kMatched);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 2}));
}

TEST(DraftSession, AGapIsMalformedAndChangesNothing) {
  DraftSession session = Open({8, 8});
  Draft(session, {1, 2});
  EXPECT_EQ(session.OnCommit({4, {2}}), Outcome::kMalformed);
  EXPECT_EQ(session.OnCommit({-1, {2, 2, 2, 2, 2}}), Outcome::kMalformed);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 2}));
  EXPECT_EQ(session.committed_length(), 3);
}

TEST(DraftSession, TheLeadDiffersAfterAMismatchAndInFlow) {
  DraftSession session = Open({2, 3});
  EXPECT_EQ(session.OnDrafted(1).stop, StopMark::kNone);
  EXPECT_EQ(session.OnDrafted(2).stop, StopMark::kLead);
  EXPECT_FALSE(session.WantsStep());
  session.OnCommit({3, {1}});  // flow: 1 ahead, 3 allowed
  EXPECT_EQ(session.OnDrafted(3).stop, StopMark::kNone);
  EXPECT_EQ(session.OnDrafted(4).stop, StopMark::kLead);
  session.OnCommit({4, {9}});  // mismatch: 0 ahead, 2 allowed
  EXPECT_EQ(session.OnDrafted(3).stop, StopMark::kNone);
  EXPECT_EQ(session.OnDrafted(4).stop, StopMark::kLead);
}

TEST(DraftSession, ALeadIsNeverLongerThanTheTargetTakes) {
  DraftSession session = Open({1000, 1000}, /*max_length=*/2000);
  int drafted = 0;
  for (; session.WantsStep(); ++drafted) session.OnDrafted(1);
  EXPECT_EQ(drafted, kMaxLead);
}

TEST(DraftSession, ANewPlanChangesTheLead) {
  DraftSession session = Open({1, 1});
  Draft(session, {1});
  EXPECT_FALSE(session.WantsStep());
  session.OnPlan({2, 2});
  EXPECT_TRUE(session.WantsStep());
  EXPECT_EQ(session.OnDrafted(2).stop, StopMark::kLead);
}

TEST(DraftSession, APolicyStopHoldsUntilTheNextCommit) {
  DraftSession session = Open({8, 8, /*waits_at_stop=*/true});
  EXPECT_EQ(session.OnDrafted(1, /*policy_stop=*/true).stop, StopMark::kPolicy);
  EXPECT_FALSE(session.WantsStep());
  EXPECT_EQ(session.OnCommit({3, {}}), Outcome::kRepeated);
  EXPECT_FALSE(session.WantsStep());
  session.OnCommit({3, {1}});
  EXPECT_TRUE(session.WantsStep());
}

TEST(DraftSession, UnderOverlapAPolicyStopIsOnlyMarked) {
  DraftSession session = Open({3, 3});
  EXPECT_EQ(session.OnDrafted(1, /*policy_stop=*/true).stop, StopMark::kChunk);
  EXPECT_TRUE(session.WantsStep());
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);  // it has not stopped
  EXPECT_EQ(session.OnDrafted(2).stop, StopMark::kNone);
  // What really ends the draft counts more, and says so again where needed.
  EXPECT_EQ(session.OnDrafted(3, /*policy_stop=*/true).stop, StopMark::kLead);
  EXPECT_FALSE(session.WantsStep());
  session.OnCommit({3, {1}});
  EXPECT_EQ(session.OnDrafted(7, /*policy_stop=*/true).stop, StopMark::kEnd);
}

TEST(DraftSession, AnEndTokenComesBeforeAPolicyStop) {
  DraftSession session = Open({8, 8, /*waits_at_stop=*/true});
  EXPECT_EQ(session.OnDrafted(7, /*policy_stop=*/true).stop, StopMark::kEnd);
}

TEST(DraftSession, ADiscardedTokenBlocksUntilTheTargetHasSaidWhatStandsThere) {
  for (const bool waits : {false, true}) {
    DraftSession session = Open({8, 8, waits});
    Draft(session, {1, 2});
    session.OnDiscarded();
    EXPECT_FALSE(session.WantsStep());
    absl::optional<Tail> notice = session.TakeStopNotice();
    ASSERT_TRUE(notice.has_value());
    EXPECT_EQ(notice->stop, StopMark::kPolicy);
    EXPECT_EQ(notice->first_position, 5);
    EXPECT_TRUE(notice->token_ids.empty());
    EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
    // Only what stands before is confirmed: it would draw the same again. The
    // target forgets the mark at its step.
    session.OnCommit({3, {1, 2}});
    EXPECT_FALSE(session.WantsStep());
    notice = session.TakeStopNotice();
    ASSERT_TRUE(notice.has_value());
    EXPECT_EQ(notice->base_length, 5);
    session.OnCommit({5, {9}});
    EXPECT_TRUE(session.WantsStep());
  }
}

TEST(DraftSession, ADiscardedTokenIsForgottenAtAMismatch) {
  DraftSession session = Open({8, 8});
  Draft(session, {1});
  session.OnDiscarded();
  session.OnCommit({3, {5}});  // as long as before, but another sequence
  EXPECT_EQ(session.length(), 4);
  EXPECT_TRUE(session.WantsStep());
}

TEST(DraftSession, ReportsWhatACommitSaysOfItsTokens) {
  using Report = DraftSession::CommitReport;
  DraftSession session = Open({8, 8});
  EXPECT_EQ(session.last_commit(), Report());
  Draft(session, {1, 2, 3});
  session.OnCommit({3, {1}});
  EXPECT_EQ(session.last_commit(), (Report{1, false, false}));
  session.OnCommit({3, {1}});  // known: nothing new is said
  EXPECT_EQ(session.last_commit(), (Report{1, false, false}));
  session.OnCommit({4, {2, 3}});
  EXPECT_EQ(session.last_commit(), (Report{2, false, false}));
  session.OnCommit({6, {4}});  // which it had not drafted
  EXPECT_EQ(session.last_commit(), (Report{0, false, true}));
  Draft(session, {5, 6});
  session.OnCommit({7, {5, 6, 7}});
  EXPECT_EQ(session.last_commit(), (Report{2, false, true}));
  Draft(session, {1, 2});
  session.OnCommit({10, {1, 9, 8}});
  EXPECT_EQ(session.last_commit(), (Report{1, true, false}));
}

TEST(DraftSession, ReportsTheRanksOfTheTargetsTokens) {
  DraftSession session = Open({8, 8});
  session.OnDrafted(1, false, {1, 2, 3});
  session.OnDrafted(2, false, {2, 1});
  session.OnDrafted(3);  // without ranks
  session.OnDrafted(4, false, {4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  session.OnCommit({3, {1, 2, 3}});
  EXPECT_EQ(session.last_commit().ranks, (std::vector<int>{1, 1}));
  // Nothing is learnt below a wrong token: 12 is the ninth.
  session.OnDrafted(5, false, {5, 6});
  session.OnCommit({6, {12, 6}});
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{kBeyond});
  session.OnDrafted(5, false, {5, 6, 7});
  session.OnCommit({8, {7, 9}});
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{3});
  session.OnDrafted(5, false, {5, 6});
  session.OnCommit({10, {5, 9}});  // 9 is a place that it had not drafted
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{1});
}

TEST(DraftSession, ADraftedEndTokenEndsTheDraftUntilAMismatch) {
  for (const int32_t end : {7, 8}) {
    DraftSession session = Open({8, 8});
    Draft(session, {1});
    EXPECT_EQ(session.OnDrafted(end).stop, StopMark::kEnd);
    session.OnCommit({3, {1}});
    EXPECT_FALSE(session.WantsStep());
    EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);  // still the end
    session.OnCommit({4, {2}});  // the target does not end
    EXPECT_TRUE(session.WantsStep());
  }
}

// Nothing may show what the token is before it has been judged.
TEST(DraftSession, UnderTheRatioTestItDraftsOnBehindAnEnd) {
  DraftSession::Options options;
  options.max_length = 7;
  options.end_ids = {7};
  options.plan = {3, 3};
  options.verification = Verification::kRatio;
  DraftSession session(options, {10, 11, 12});
  EXPECT_EQ(session.OnDrafted(7).stop, StopMark::kNone);
  EXPECT_TRUE(session.WantsStep());
  EXPECT_EQ(session.OnDrafted(7).stop, StopMark::kNone);
  EXPECT_EQ(session.OnDrafted(1).stop, StopMark::kLead);
  session.OnCommit({3, {7, 7}});
  EXPECT_EQ(session.OnDrafted(2).stop, StopMark::kEnd) << "the longest it gets";
}

TEST(DraftSession, AnEndTokenThatWasCommittedDoesNotEndTheDraft) {
  // With ignore_eos the coordinator gives no end ids; in a prompt it may stand.
  DraftSession::Options options;
  options.max_length = 10;
  options.end_ids = {7};
  options.plan = {2, 2};
  EXPECT_TRUE(DraftSession(options, {10, 7}).WantsStep());
}

TEST(DraftSession, MaxLengthEndsTheDraft) {
  DraftSession session = Open({8, 8}, /*max_length=*/5);
  EXPECT_EQ(session.OnDrafted(1).stop, StopMark::kNone);
  EXPECT_EQ(session.OnDrafted(2).stop, StopMark::kEnd);
  EXPECT_FALSE(session.WantsStep());
  session.OnCommit({3, {9}});  // shorter again
  EXPECT_TRUE(session.WantsStep());
  EXPECT_EQ(session.OnDrafted(3).stop, StopMark::kEnd);
  session.OnCommit({4, {3, 4, 5}});  // beyond what it may hold: no harm
  EXPECT_EQ(session.length(), 7);
  EXPECT_FALSE(session.WantsStep());
}

TEST(DraftSession, GivesNoNoticeWhileItGoesOnOrWhenItsMessageSaidSo) {
  DraftSession session = Open({2, 2});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  Draft(session, {1, 2});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
}

TEST(DraftSession, ADraftThatMayNotBeginSaysSoOnce) {
  DraftSession session = Open({0, 0});
  const absl::optional<Tail> notice = session.TakeStopNotice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->epoch, 4u);
  EXPECT_EQ(notice->base_length, 3);
  EXPECT_EQ(notice->first_position, 3);
  EXPECT_TRUE(notice->token_ids.empty());
  EXPECT_EQ(notice->stop, StopMark::kLead);
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
}

TEST(DraftSession, ACommitThatFreesNothingIsFollowedByANotice) {
  DraftSession session = Open({4, 2});
  Draft(session, {1, 2, 3, 4});
  session.OnCommit({3, {1}});  // 3 ahead, 2 allowed in flow
  const absl::optional<Tail> notice = session.TakeStopNotice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->base_length, 4);
  EXPECT_EQ(notice->first_position, 7);
  EXPECT_EQ(notice->stop, StopMark::kLead);
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  session.OnCommit({4, {2}});
  EXPECT_TRUE(session.TakeStopNotice().has_value());
}

// Of a drafter that reads features of the target, as far as these have come.
TEST(DraftSession, BeyondItsHorizonItSaysNothingAndTellsTheTarget) {
  DraftSession session = Open({4, 4});
  session.SetHorizon(0);
  EXPECT_FALSE(session.WantsStep());
  EXPECT_FALSE(session.HasNothingToDo()) << "it waits";
  absl::optional<Tail> notice = session.TakeStopNotice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->stop, StopMark::kLead);
  session.SetHorizon(5);
  EXPECT_TRUE(session.WantsStep());
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  EXPECT_TRUE(session.WantsStepAfterNext(false));
  EXPECT_EQ(session.OnDrafted(1).stop, StopMark::kNone);
  EXPECT_FALSE(session.WantsStepAfterNext(false));
  EXPECT_EQ(session.OnDrafted(2).stop, StopMark::kLead);
  EXPECT_FALSE(session.WantsStep());
  // The target steps, and its features are late.
  session.OnCommit({3, {1}});
  EXPECT_FALSE(session.WantsStep());
  EXPECT_TRUE(session.TakeStopNotice().has_value());
  session.SetHorizon(6);
  EXPECT_TRUE(session.WantsStep());
}

TEST(DraftSession, ATreeEndsAtItsHorizon) {
  DraftSession::Options options;
  options.max_length = 100;
  options.plan = {8, 8};
  options.plan.rows = 4;
  options.plan.least_score = -10;
  options.num_slots = 16;
  DraftSession session(options, {10, 11, 12});
  session.SetHorizon(4);
  ASSERT_TRUE(session.WantsStep());
  std::vector<DraftTree::Row> rows;
  session.BeginStep(4, &rows);
  ASSERT_EQ(rows.size(), 1u);
  const Ids ids = {1, 2};
  const std::vector<float> scores = {2, 1};
  const std::vector<float> log2s = {-0.5f, -1.5f};
  Tail tail;
  session.OnExpanded(rows[0].number, {ids, scores, log2s}, &tail);
  session.FinishStep(&tail);
  EXPECT_EQ(tail.token_ids, ids) << "both stand at position 3";
  EXPECT_EQ(tail.stop, StopMark::kLead);
  EXPECT_FALSE(session.WantsStep());
  session.SetHorizon(5);
  EXPECT_TRUE(session.WantsStep());
}

TEST(DraftSession, ANoticeFollowsAPlanThatStopsTheDraft) {
  DraftSession session = Open({4, 4});
  Draft(session, {1});
  session.OnPlan({1, 1});
  ASSERT_TRUE(session.TakeStopNotice().has_value());
  session.OnPlan({4, 4});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  session.OnDrafted(2);  // says kNone
  session.OnPlan({1, 1});
  EXPECT_TRUE(session.TakeStopNotice().has_value());
}

TEST(DraftSession, ADraftThatRestsGivesNoNoticeOfEveryCommit) {
  DraftSession session = Open({0, 0});
  EXPECT_TRUE(session.TakeStopNotice().has_value());
  session.OnCommit({3, {1}});
  session.OnCommit({4, {2}});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 2}));
  // It goes on from what was committed meanwhile.
  session.OnPlan({1, 1});
  EXPECT_TRUE(session.WantsStep());
  const Tail tail = session.OnDrafted(3);
  EXPECT_EQ(tail.base_length, 5);
  EXPECT_EQ(tail.first_position, 5);
  // Sent to rest with a token drafted: the target has been told of it.
  session.OnPlan({0, 0});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  session.OnCommit({5, {4}});  // a mismatch: the target forgets
  EXPECT_TRUE(session.TakeStopNotice().has_value());
  session.OnCommit({6, {4}});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
}

TEST(DraftSession, TheEndIsAnnouncedAgainAfterAMismatch) {
  DraftSession session = Open({8, 8}, /*max_length=*/4);
  EXPECT_EQ(session.OnDrafted(1).stop, StopMark::kEnd);
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
  session.OnCommit({3, {9}});  // the target forgets the mark; the end holds
  const absl::optional<Tail> notice = session.TakeStopNotice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->stop, StopMark::kEnd);
  EXPECT_EQ(notice->base_length, 4);
  session.OnCommit({4, {5}});
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
}

TEST(DraftSession, ACommitThatReachesTheEndIsFollowedByANotice) {
  DraftSession session = Open({8, 8}, /*max_length=*/4);
  session.OnCommit({3, {1}});
  const absl::optional<Tail> notice = session.TakeStopNotice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->stop, StopMark::kEnd);
}

TEST(DraftSession, ForeseesWhetherItGoesOn) {
  for (const bool waits : {true, false}) {
    for (int lead = 1; lead <= 6; ++lead) {
      for (const int max_length : {5, 7, 100}) {
        DraftSession session = Open({lead, lead, waits}, max_length);
        for (int i = 0; session.WantsStep(); ++i) {
          const bool policy_stop = i == 2;
          const bool goes_on = session.WantsStepAfterNext(policy_stop);
          session.OnDrafted(1, policy_stop);
          EXPECT_EQ(session.WantsStep(), goes_on) << lead << " " << max_length;
        }
        EXPECT_FALSE(session.WantsStepAfterNext(false));
      }
    }
  }
  DraftSession session = Open({2, 4});
  EXPECT_TRUE(session.WantsStepAfterNext(false));
  session.OnDrafted(1);
  EXPECT_FALSE(session.WantsStepAfterNext(false));
  session.OnCommit({3, {1}});
  EXPECT_TRUE(session.WantsStepAfterNext(false));
}

}  // namespace
}  // namespace nacre::speculation
