#include "coordinator/dispatch/request_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Verdict;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RequestAccountTest : public ::testing::Test {
 protected:
  RequestAccountTest() {
    request_.prompt_ids = {1, 2, 3, 4};
    request_.arrival_ns = 100;
    request_.trace = true;
  }
  RequestAccount& account() {
    if (account_ == nullptr) {
      account_ = std::make_unique<RequestAccount>(
          std::make_shared<const RequestSpec>(request_));
    }
    return *account_;
  }
  void OnSpan(WorkerRole role, SpanRecord::Kind kind, int64_t start_ns,
              int64_t duration_ns, int rows = 1, int batch_rows = 1) {
    SpanRecord span;
    span.kind = kind;
    span.start_ns = start_ns;
    span.duration_ns = duration_ns;
    span.rows = rows;
    span.batch_rows = batch_rows;
    account().OnSpan(role, span);
  }
  static TraceLane Lane(WorkerRole role, const std::string& address) {
    TraceLane lane;
    lane.role = role;
    lane.address = address;
    return lane;
  }
  Completion Close() {
    Completion completion;
    account().Close(/*num_tokens=*/7, /*now_ns=*/1000,
                    Lane(WorkerRole::kTarget, "t"),
                    Lane(WorkerRole::kDraft, "d"), &completion);
    return completion;
  }

  RequestSpec request_;
  std::unique_ptr<RequestAccount> account_;
};

TEST(CutAtMaxTokensTest, NothingBehindTheLimitCounts) {
  Verdict verdict;
  verdict.token_ids = {5, 6, 7};
  EXPECT_FALSE(CutAtMaxTokens(verdict, 10, 6).has_value());
  // The limit ends the answer, whatever the target says of it.
  auto cut = CutAtMaxTokens(verdict, 10, 7);
  ASSERT_TRUE(cut.has_value());
  EXPECT_THAT(cut->token_ids, ElementsAre(5, 6, 7));
  EXPECT_EQ(cut->finish, FinishReason::kLength);
  verdict.finish = FinishReason::kEos;
  EXPECT_FALSE(CutAtMaxTokens(verdict, 10, 7).has_value());
  cut = CutAtMaxTokens(verdict, 10, 8);
  ASSERT_TRUE(cut.has_value());
  EXPECT_THAT(cut->token_ids, ElementsAre(5, 6));
  EXPECT_EQ(cut->finish, FinishReason::kLength);
}

TEST_F(RequestAccountTest, TimesCountFromTheArrival) {
  account().OnStarted(150);
  AppliedVerdict applied;
  applied.now_ns = 400;
  applied.stats.rounds = 1;
  applied.stats.committed = 9;
  applied.window = 3;
  applied.alpha = 0.5;
  account().OnShown(applied);
  applied.now_ns = 500;
  applied.stats.rounds = 2;
  account().OnShown(applied);
  const Completion completion = Close();
  EXPECT_EQ(completion.queue_ns, 50);
  EXPECT_EQ(completion.time_to_first_token_ns, 300);
  EXPECT_EQ(completion.total_ns, 900);
  EXPECT_EQ(completion.stats.rounds, 2);
  EXPECT_EQ(completion.stats.committed, 7);  // shown
  EXPECT_EQ(completion.window, 3);
  EXPECT_EQ(completion.alpha, 0.5);
}

TEST_F(RequestAccountTest, BusyIsAShareOfTheBatch) {
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kPrefill, 0, 100, 1, 4);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 100, 50, 1, 2);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kWaitDraftTokens, 150, 5);
  SpanRecord after_miss;
  after_miss.kind = SpanRecord::Kind::kWaitDraftTokens;
  after_miss.duration_ns = 7;
  after_miss.after_miss = true;
  account().OnSpan(WorkerRole::kTarget, after_miss);
  OnSpan(WorkerRole::kDraft, SpanRecord::Kind::kDraft, 0, 60, 1, 3);
  OnSpan(WorkerRole::kDraft, SpanRecord::Kind::kWaitVerdict, 60, 9);
  const Completion completion = Close();
  EXPECT_EQ(completion.target_busy_ns, 50);
  EXPECT_EQ(completion.target_wait_ns, 12);
  EXPECT_EQ(completion.target_wait_after_miss_ns, 7);
  EXPECT_EQ(completion.draft_busy_ns, 20);
  EXPECT_EQ(completion.draft_wait_ns, 9);
}

TEST_F(RequestAccountTest, HiddenStatesMayBeBeyondAnyNumber) {
  SpanRecord span;
  span.kind = SpanRecord::Kind::kHidden;
  span.bytes = std::numeric_limits<int64_t>::max();
  span.duration_ns = 4;
  account().OnSpan(WorkerRole::kDraft, span);
  account().OnSpan(WorkerRole::kDraft, span);
  const Completion completion = Close();
  EXPECT_EQ(completion.hidden_bytes, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(completion.hidden_ns, 8);
}

TEST_F(RequestAccountTest, AGapIsBetweenStepsThatWaitedForNothing) {
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 100, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 170, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kWaitDraftTokens, 220, 10);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 230, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kWaitAcknowledge, 280, 10);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 290, 50);
  account().OnWorkerLeft(Lane(WorkerRole::kTarget, "t0"));  // another clock
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 400, 50);
  EXPECT_THAT(Close().step_gaps_ns, ElementsAre(20));
}

TEST_F(RequestAccountTest, OnlyTheFirstTargetsCacheCounts) {
  EXPECT_EQ(account().OnCached(2), 0);  // it is not open
  EXPECT_EQ(account().OnOpened(2), 2);
  EXPECT_EQ(account().OnCached(1), 1);
  EXPECT_EQ(account().OnCached(5), 1);  // the prompt has four tokens
  account().OnWorkerLeft(Lane(WorkerRole::kTarget, "t"));
  EXPECT_EQ(account().OnOpened(3), absl::nullopt);
  EXPECT_EQ(account().OnCached(1), 0);
  EXPECT_EQ(Close().cached_tokens, 4);
}

TEST_F(RequestAccountTest, ImpossibleCachesAreCut) {
  EXPECT_EQ(account().OnOpened(9), 4);
  account_ = nullptr;
  EXPECT_EQ(account().OnOpened(-1), 0);
}

TEST_F(RequestAccountTest, TheTraceHasALaneOfEachWorker) {
  OnSpan(WorkerRole::kDraft, SpanRecord::Kind::kDraft, 0, 10);
  account().OnWorkerLeft(Lane(WorkerRole::kDraft, "d0"));
  account().OnWorkerLeft(Lane(WorkerRole::kDraft, "idle"));
  OnSpan(WorkerRole::kDraft, SpanRecord::Kind::kDraft, 20, 10);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 0, 10);
  const Completion completion = Close();
  ASSERT_EQ(completion.trace.size(), 3u);
  EXPECT_EQ(completion.trace[0].address, "t");
  EXPECT_EQ(completion.trace[0].spans.size(), 1u);
  EXPECT_EQ(completion.trace[1].address, "d");
  EXPECT_EQ(completion.trace[1].spans[0].start_ns, 20);
  EXPECT_EQ(completion.trace[2].address, "d0");
  EXPECT_EQ(completion.trace[2].spans[0].start_ns, 0);
}

TEST_F(RequestAccountTest, WithoutATraceNothingIsKept) {
  request_.trace = false;
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 100, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 170, 50);
  const Completion completion = Close();
  EXPECT_THAT(completion.trace, IsEmpty());
  EXPECT_THAT(completion.step_gaps_ns, IsEmpty());
  EXPECT_EQ(completion.target_busy_ns, 100);
}

TEST_F(RequestAccountTest, RoundsAreCountedByWhatTheyAccepted) {
  request_.detailed_stats = true;
  Verdict step;
  step.window = 4;
  step.accepted = 2;
  account().CountRound(step);
  account().CountRound(step);
  step.accepted = -1;  // a target says anything
  step.suffix_proposed = 3;
  account().CountRound(step);
  const Completion completion = Close();
  EXPECT_THAT(completion.acceptance_histogram, ElementsAre(1, 0, 2));
  ASSERT_EQ(completion.rounds.size(), 3u);
  EXPECT_EQ(completion.rounds[0].drafted, 4);
  EXPECT_EQ(completion.rounds[0].accepted, 2);
  EXPECT_EQ(completion.rounds[2].drafted, 1) << "three are the target's own";
}

TEST_F(RequestAccountTest, AStepThatTheTextCutShortCounts) {
  Verdict step;
  step.window = step.verified = 4;
  step.accepted = 2;
  account().EndStepEarly(step);
  EXPECT_EQ(Close().stats.rounds, 1);
}

TEST_F(RequestAccountTest, WithoutARoundThereIsNoHistogram) {
  account().OnStarted(100);
  const Completion completion = Close();
  EXPECT_THAT(completion.acceptance_histogram, IsEmpty());
  EXPECT_THAT(completion.rounds, IsEmpty());
  EXPECT_EQ(completion.queue_ns, 0);
  EXPECT_EQ(completion.cached_tokens, 0);
}

TEST_F(RequestAccountTest, RoundsAreListedOnDemandOnly) {
  Verdict step;
  step.window = 4;
  step.accepted = 3;
  account().CountRound(step);
  const Completion completion = Close();
  EXPECT_THAT(completion.acceptance_histogram, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(completion.rounds, IsEmpty());
}

TEST_F(RequestAccountTest, ASpanWithoutABatchIsItsOwn) {
  OnSpan(WorkerRole::kDraft, SpanRecord::Kind::kPrefill, 0, 100, 3, 0);
  OnSpan(WorkerRole::kDraft, SpanRecord::Kind::kRollback, 100, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kWaitAcknowledge, 0, 70);
  const Completion completion = Close();
  EXPECT_EQ(completion.draft_busy_ns, 100);
  EXPECT_EQ(completion.draft_wait_ns, 0);
  EXPECT_EQ(completion.target_busy_ns, 0);
  EXPECT_EQ(completion.target_wait_ns, 0);
}

TEST_F(RequestAccountTest, StepsThatTouchHaveNoGap) {
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 100, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 150, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kPrefill, 200, 50);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 201, 50);
  EXPECT_THAT(Close().step_gaps_ns, ElementsAre(1));
}

TEST_F(RequestAccountTest, ALostDraftChangesNothingOfTheTarget) {
  EXPECT_EQ(account().OnOpened(1), 1);
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 100, 50);
  account().OnWorkerLeft(Lane(WorkerRole::kDraft, "d0"));
  OnSpan(WorkerRole::kTarget, SpanRecord::Kind::kVerify, 170, 50);
  EXPECT_EQ(account().OnCached(1), 1);
  EXPECT_EQ(account().OnCached(-1), 0);
  const Completion completion = Close();
  EXPECT_THAT(completion.step_gaps_ns, ElementsAre(20));
  EXPECT_EQ(completion.cached_tokens, 2);
  EXPECT_EQ(completion.trace[0].spans.size(), 2u);
}

}  // namespace
}  // namespace nacre::coordinator
