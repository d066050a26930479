#include "coordinator/dispatch/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/coordinator/session_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Verdict;
using ::testing::ElementsAre;

// Whatever a target commits, the answer ends at max_tokens.
TEST_F(SessionTest, NothingBehindMaxTokensCounts) {
  request_.max_tokens = 4;
  request_.logprobs = 0;
  Say({'a', 'b'});
  EXPECT_FALSE(answer().finished());
  std::vector<TokenLogprobs> logprobs(4);
  const auto commit = OnVerdict(Next({'c', 'd', 'e', 'f'}), logprobs);
  EXPECT_THAT(commit->token_ids, ElementsAre('c', 'd'));
  EXPECT_TRUE(answer().finished());
  EXPECT_FALSE(session().ApplyVerdict(Next({'g'})).has_value());
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kLength);
  EXPECT_THAT(completion.token_ids, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_EQ(completion.text, "abcd");
  EXPECT_EQ(completion.logprobs.size(), 2u);
  EXPECT_EQ(completion.stats.committed, 4);
}

TEST_F(SessionTest, AnEndBehindMaxTokensIsNoneEither) {
  request_.max_tokens = 2;
  const auto commit = OnVerdict(Next({'a', 'b', 'c'}, FinishReason::kEos));
  EXPECT_THAT(commit->token_ids, ElementsAre('a', 'b'));
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kLength);
  EXPECT_EQ(completion.text, "ab");
}

TEST_F(SessionTest, AVerdictBecomesAChunkAndACommitForTheDraft) {
  Verdict verdict = Next(Bytes("hey"));
  const auto commit = OnVerdict(verdict);
  ASSERT_TRUE(commit.has_value());
  EXPECT_EQ(commit->first_position, 2);
  EXPECT_EQ(commit->token_ids, Bytes("hey"));
  Say(Bytes("you"));
  const std::vector<Chunk> chunks = sink_->chunks();
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].first_index, 0);
  EXPECT_EQ(chunks[0].token_ids, Bytes("hey"));
  EXPECT_EQ(chunks[0].text, "hey");
  EXPECT_EQ(chunks[1].first_index, 3);
  EXPECT_EQ(chunks[1].text, "you");
  EXPECT_FALSE(answer().finished());
}

TEST_F(SessionTest, RepeatedAndMalformedVerdictsSayNothing) {
  const Verdict verdict = Next(Bytes("hey"));
  EXPECT_TRUE(OnVerdict(verdict).has_value());
  EXPECT_FALSE(OnVerdict(verdict).has_value());
  Verdict gap = verdict;
  gap.base_length = 50;
  EXPECT_FALSE(OnVerdict(gap).has_value());
  gap.base_length = -1;
  EXPECT_FALSE(OnVerdict(gap).has_value());
  EXPECT_EQ(sink_->chunks().size(), 1u);
  EXPECT_EQ(session().schedule().stats().stale_messages, 3);
}

TEST_F(SessionTest, OtherSessionsRowsAreAveraged) {
  EXPECT_EQ(session().other_rows(), absl::nullopt);
  for (int i = 0; i < 100; ++i) {
    OnSpan(WorkerRole::kTarget,
           Span(SpanRecord::Kind::kVerify, 10 * i, 5, 3, 10));
  }
  EXPECT_EQ(session().other_rows(), 7);
  EXPECT_NEAR(session().own_rows(), 3.0, 0.01);
}

// The rows of its own prompt are no company.
TEST_F(SessionTest, AStepThatSharesItsForwardWithThePromptDoesNotCount) {
  OnSpan(WorkerRole::kTarget, Span(SpanRecord::Kind::kPrefill, 10, 5, 9, 10));
  OnSpan(WorkerRole::kTarget, Span(SpanRecord::Kind::kVerify, 10, 5, 1, 10));
  EXPECT_EQ(session().other_rows(), absl::nullopt);
  OnSpan(WorkerRole::kTarget, Span(SpanRecord::Kind::kVerify, 20, 5, 1, 3));
  EXPECT_EQ(session().other_rows(), 2);
}

TEST_F(SessionTest, AcknowledgesEverySixteenTokens) {
  Say(std::vector<int32_t>(15, 'x'));
  EXPECT_FALSE(session().TakeAcknowledgement().has_value());
  Say(Bytes("y"));
  EXPECT_EQ(session().TakeAcknowledgement(), 18);
  EXPECT_FALSE(session().TakeAcknowledgement().has_value());
  Say(std::vector<int32_t>(17, 'x'));
  EXPECT_EQ(session().TakeAcknowledgement(), 35);
}

TEST_F(SessionTest, AcknowledgementsWaitForASlowClientOfAStream) {
  Say(std::vector<int32_t>(20, 'x'));
  sink_->set_pending_chunks(33);
  EXPECT_FALSE(session().TakeAcknowledgement().has_value());
  sink_->set_pending_chunks(32);
  EXPECT_EQ(session().TakeAcknowledgement(), 22);

  session_ = nullptr;
  request_.stream = false;  // nothing is on its way to such a client
  sink_->set_pending_chunks(33);
  Say(std::vector<int32_t>(20, 'x'));
  EXPECT_EQ(session().TakeAcknowledgement(), 22);
}

// The whole answer is there at the end; what is counted is of this request.
TEST_F(SessionTest, AResumedOneGoesOnBehindItsTokens) {
  request_.max_tokens = 5;
  request_.logprobs = 0;
  request_.resume = std::make_shared<const std::vector<ResumedChoice>>(
      1, ResumedChoice{Bytes("hey")});
  EXPECT_EQ(session().schedule().committed(), Bytes("hey"));
  EXPECT_EQ(session().schedule().generated(), 3);
  EXPECT_FALSE(session().TakeAcknowledgement().has_value());
  const Verdict verdict = Next(Bytes("you"));
  EXPECT_EQ(verdict.base_length, 5);
  const auto commit = OnVerdict(verdict, std::vector<TokenLogprobs>(3));
  ASSERT_TRUE(commit.has_value());
  EXPECT_EQ(commit->first_position, 5);
  EXPECT_EQ(commit->token_ids, Bytes("yo"));
  ASSERT_EQ(sink_->chunks().size(), 1u);
  const Chunk chunk = sink_->chunks()[0];
  EXPECT_EQ(chunk.first_index, 3);
  EXPECT_EQ(chunk.text, "yo");
  EXPECT_EQ(chunk.logprobs.size(), 2u);
  EXPECT_EQ(chunk.numerics_id, "n");
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kLength);
  EXPECT_EQ(completion.text, "heyyo");
  EXPECT_EQ(completion.token_ids, Bytes("heyyo"));
  EXPECT_EQ(completion.logprobs.size(), 2u);
  EXPECT_EQ(completion.stats.committed, 2);
  EXPECT_EQ(completion.stats.rounds, 1);
}

TEST_F(SessionTest, LaterStepsWeighAFifth) {
  using Kind = SpanRecord::Kind;
  EXPECT_EQ(session().own_rows(), 1);
  OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 10, 5, 6, 10));
  EXPECT_DOUBLE_EQ(session().other_rows().value(), 4);
  EXPECT_DOUBLE_EQ(session().own_rows(), 2);
  OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 20, 5, 7, 21));
  EXPECT_DOUBLE_EQ(session().other_rows().value(), 6);
  EXPECT_DOUBLE_EQ(session().own_rows(), 3);
  // Of a draft, or of other work, it says nothing.
  OnSpan(WorkerRole::kDraft, Span(Kind::kVerify, 30, 5, 7, 21));
  OnSpan(WorkerRole::kTarget, Span(Kind::kDraft, 30, 5, 7, 21));
  EXPECT_DOUBLE_EQ(session().other_rows().value(), 6);
}

TEST_F(SessionTest, AnotherTargetHasOtherCompany) {
  using Kind = SpanRecord::Kind;
  TraceLane lane;
  OnSpan(WorkerRole::kTarget, Span(Kind::kPrefill, 10, 5, 9, 10));
  OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 20, 5, 1, 4));
  lane.role = WorkerRole::kDraft;
  Leave(lane);
  EXPECT_EQ(session().other_rows(), 3);
  lane.role = WorkerRole::kTarget;
  Leave(lane);
  EXPECT_EQ(session().other_rows(), absl::nullopt);
  // On its clock the same time is another step.
  OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 10, 5, 1, 6));
  EXPECT_EQ(session().other_rows(), 5);
}

TEST_F(SessionTest, AnotherTargetIsOpenedWithAllThatIsCommitted) {
  Say(std::vector<int32_t>(20, 'x'));
  TraceLane lane;
  lane.role = WorkerRole::kDraft;
  Leave(lane);
  EXPECT_EQ(session().TakeAcknowledgement(), 22);
  Say(std::vector<int32_t>(20, 'x'));
  lane.role = WorkerRole::kTarget;
  Leave(lane);
  EXPECT_EQ(session().TakeAcknowledgement(), absl::nullopt);
  Say(std::vector<int32_t>(15, 'x'));
  EXPECT_EQ(session().TakeAcknowledgement(), absl::nullopt);
  Say(Bytes("y"));
  EXPECT_EQ(session().TakeAcknowledgement(), 58);
}

TEST_F(SessionTest, IsHeldBackUntilItsClientHasTakenEnough) {
  Say(std::vector<int32_t>(20, 'x'));
  EXPECT_FALSE(session().is_held_back());
  sink_->set_pending_chunks(33);
  session().TakeAcknowledgement();
  EXPECT_TRUE(session().is_held_back());
  sink_->set_pending_chunks(32);
  session().TakeAcknowledgement();
  EXPECT_FALSE(session().is_held_back());
  // With nothing to acknowledge a slow client holds nothing back.
  sink_->set_pending_chunks(33);
  session().TakeAcknowledgement();
  EXPECT_FALSE(session().is_held_back());
}

TEST_F(SessionTest, LogprobsOfThePromptComeInOrderAndOnce) {
  request_.prompt_ids = {7, 8, 9, 10};
  request_.prompt_logprobs = 0;
  const auto told = [](int first, std::vector<int32_t> ids) {
    wire::PromptLogprobs logprobs;
    logprobs.first_position = first;
    for (const int32_t id : ids) {
      logprobs.logprobs.emplace_back();
      logprobs.logprobs.back().token_id = id;
    }
    return logprobs;
  };
  EXPECT_TRUE(session().LacksPromptLogprobs());
  EXPECT_FALSE(session().ApplyPromptLogprobs(told(1, {})));
  EXPECT_FALSE(session().ApplyPromptLogprobs(told(2, {9})));      // a gap
  EXPECT_FALSE(session().ApplyPromptLogprobs(told(1, {8, 10})));  // another
  EXPECT_FALSE(session().ApplyPromptLogprobs(told(1, {8, 9, 10, 11})));
  EXPECT_TRUE(session().ApplyPromptLogprobs(told(1, {8, 9})));
  EXPECT_EQ(session().prompt_logprobs(), 2);
  EXPECT_TRUE(session().LacksPromptLogprobs());
  EXPECT_FALSE(session().ApplyPromptLogprobs(told(1, {8, 9})));  // again
  EXPECT_FALSE(session().ApplyPromptLogprobs(told(3, {10, 11})));
  EXPECT_TRUE(session().ApplyPromptLogprobs(told(3, {10})));
  EXPECT_FALSE(session().LacksPromptLogprobs());
  EXPECT_EQ(session().prompt_logprobs(), 3);
}

TEST_F(SessionTest, NobodyIsToldLogprobsThatWereNotAskedFor) {
  request_.prompt_ids = {7, 8};
  wire::PromptLogprobs told;
  told.first_position = 1;
  told.logprobs.emplace_back();
  told.logprobs.back().token_id = 8;
  EXPECT_FALSE(session().LacksPromptLogprobs());
  EXPECT_FALSE(session().ApplyPromptLogprobs(told));
}

}  // namespace
}  // namespace nacre::coordinator
