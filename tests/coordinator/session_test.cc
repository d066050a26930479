#include "coordinator/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/recording_sink.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Verdict;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    request_.prompt_ids = Bytes("ab");
    request_.max_tokens = 1000;
    request_.stream = true;
  }

  Session& session() {
    if (session_ == nullptr) {
      session_ = std::make_unique<Session>(5, request_, 0.7, &tokenizer_, sink_,
                                           /*now_ns=*/1000);
    }
    return *session_;
  }

  // The next verdict of a target that says these tokens.
  Verdict Next(std::vector<int32_t> token_ids,
               FinishReason finish = FinishReason::kNone) {
    Verdict verdict;
    verdict.base_length =
        static_cast<int>(session().schedule().committed().size());
    verdict.token_ids = std::move(token_ids);
    verdict.finish = finish;
    return verdict;
  }
  absl::optional<speculation::Commit> OnVerdict(
      const Verdict& verdict, absl::Span<const TokenLogprobs> logprobs = {}) {
    const auto commit = session().ApplyVerdict(verdict);
    if (commit.has_value()) {
      session().ShowVerdict(verdict, /*now_ns=*/1500, logprobs);
    }
    return commit;
  }
  bool Say(std::vector<int32_t> token_ids,
           FinishReason finish = FinishReason::kNone) {
    return OnVerdict(Next(std::move(token_ids), finish)).has_value();
  }
  Completion Complete() {
    session().Complete(TraceLane(), absl::nullopt, 3.5, /*now_ns=*/9000);
    return sink_->completion().value();
  }
  static SpanRecord Span(SpanRecord::Kind kind, int64_t start_ns,
                         int64_t duration_ns, int rows, int batch_rows) {
    SpanRecord span;
    span.kind = kind;
    span.start_ns = start_ns;
    span.duration_ns = duration_ns;
    span.rows = rows;
    span.batch_rows = batch_rows;
    return span;
  }

  const ByteTokenizer tokenizer_;
  const std::shared_ptr<RecordingSink> sink_ =
      std::make_shared<RecordingSink>();
  RequestSpec request_;
  std::unique_ptr<Session> session_;
};

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
  EXPECT_FALSE(session().finished());
}

// What a step accepted is shown at once, its last row later: one round.
TEST_F(SessionTest, AStepInTwoPartsIsOneRound) {
  request_.detailed_stats = true;
  Verdict accepted = Next(Bytes("he"));
  accepted.window = accepted.matched = 2;
  accepted.verified = accepted.accepted = 2;
  ASSERT_TRUE(OnVerdict(accepted).has_value());
  EXPECT_EQ(sink_->streamed_text(), "he");
  Verdict last = Next(Bytes("y"), FinishReason::kLength);
  last.verified = last.accepted = 1;
  ASSERT_TRUE(OnVerdict(last).has_value());
  const Completion completion = Complete();
  EXPECT_EQ(completion.stats.rounds, 1);
  EXPECT_EQ(completion.acceptance_histogram,
            (std::vector<int64_t>{0, 0, 0, 1}));
  ASSERT_EQ(completion.rounds.size(), 1u);
  EXPECT_EQ(completion.rounds[0].drafted, 2);
  EXPECT_EQ(completion.rounds[0].accepted, 3);
}

TEST_F(SessionTest, AHeldStepEndsWithTheTextOrItsTarget) {
  request_.stop = {"z"};
  const auto accept = [this](const char* text) {
    Verdict accepted = Next(Bytes(text));
    accepted.window = accepted.matched = 2;
    accepted.verified = accepted.accepted = 2;
    ASSERT_TRUE(OnVerdict(accepted).has_value());
  };
  EXPECT_EQ(session().EndHeldStep(), nullptr);
  accept("ab");
  const Verdict* step = session().EndHeldStep();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->accepted, 2);
  EXPECT_EQ(session().EndHeldStep(), nullptr);
  accept("cz");
  EXPECT_TRUE(session().finished());
  EXPECT_NE(session().schedule().ended_step(), nullptr);
  const Completion completion = Complete();
  EXPECT_EQ(completion.text, "abc");
  EXPECT_EQ(completion.stats.rounds, 2);
  EXPECT_EQ(completion.acceptance_histogram, (std::vector<int64_t>{0, 0, 2}));
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

TEST_F(SessionTest, WithoutStreamingOnlyTheCompletionSpeaks) {
  request_.stream = false;
  Say(Bytes("he"));
  Say(Bytes("y"), FinishReason::kLength);
  EXPECT_TRUE(sink_->chunks().empty());
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kLength);
  EXPECT_EQ(completion.text, "hey");
  EXPECT_EQ(completion.token_ids, Bytes("hey"));
  EXPECT_EQ(completion.total_ns, 8000);
  EXPECT_EQ(completion.time_to_first_token_ns, 500);
  EXPECT_EQ(completion.cost_ratio, 3.5);
}

TEST_F(SessionTest, AStopStringAcrossVerdictsEndsTheTextBeforeIt) {
  request_.stop = {"END", "never"};
  Say(Bytes("one E"));
  Say(Bytes("N"));
  EXPECT_EQ(sink_->streamed_text(), "one ");
  Say(Bytes("D and more"));
  ASSERT_TRUE(session().finished());
  EXPECT_EQ(sink_->streamed_text(), "one ");
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kStop);
  EXPECT_EQ(completion.stop_match, "END");
  EXPECT_EQ(completion.text, "one ");
  // What follows the stop string was generated by no one.
  EXPECT_EQ(completion.token_ids, Bytes("one END"));
  EXPECT_EQ(completion.stats.committed, 7);
  EXPECT_EQ(sink_->chunks().back().token_ids, Bytes("D"));
}

TEST_F(SessionTest, TextThatOnlyBeginsAStopStringIsShownWhenThatIsCertain) {
  request_.stop = {"END"};
  Say(Bytes("E"));
  EXPECT_EQ(sink_->streamed_text(), "");
  Say(Bytes("N!"));
  EXPECT_EQ(sink_->streamed_text(), "EN!");
  Say(Bytes("EN"), FinishReason::kLength);
  EXPECT_EQ(sink_->streamed_text(), "EN!EN");
  EXPECT_EQ(Complete().text, "EN!EN");
}

TEST_F(SessionTest, AStopStringMayBeIncluded) {
  request_.stop = {"END"};
  request_.include_stop_string = true;
  Say(Bytes("oneENDmore"));
  EXPECT_EQ(Complete().text, "oneEND");
}

TEST_F(SessionTest, AStopStringBeatsAFinishLaterInTheSameVerdict) {
  request_.stop = {"END"};
  Say(Bytes("END!"), FinishReason::kLength);
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kStop);
  EXPECT_EQ(completion.token_ids, Bytes("END"));
}

TEST_F(SessionTest, AStopStringOfAnUnfinishedCharacterIsFoundAtTheEnd) {
  request_.stop = {"\xEF\xBF\xBD"};
  Say({'a', 0xC3}, FinishReason::kLength);
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kStop);
  EXPECT_EQ(completion.text, "a");
}

TEST_F(SessionTest, NoStopStringEndsTheTextBeforeItsLeastTokens) {
  request_.stop = {"l"};
  request_.min_tokens = 4;
  ASSERT_TRUE(Say(Bytes("hel")));
  ASSERT_TRUE(Say(Bytes("lo l")));
  ASSERT_TRUE(session().finished());
  EXPECT_EQ(Complete().text, "hello ");
}

TEST_F(SessionTest, ItsLeastTokensMayBeAll) {
  request_.stop = {"lo"};
  request_.min_tokens = 5;
  ASSERT_TRUE(Say(Bytes("hello"), FinishReason::kLength));
  EXPECT_EQ(Complete().text, "hello");
  EXPECT_EQ(Complete().finish, Finish::kLength);
}

TEST_F(SessionTest, LogprobsComeWithTheirTokensUpToAStopString) {
  request_.stop = {"lo"};
  request_.logprobs = 0;
  const std::vector<TokenLogprobs> logprobs = {{'h', -1.0f}, {'e', -2.0f},
                                               {'l', -3.0f}, {'l', -4.0f},
                                               {'o', -5.0f}, {'!', -6.0f}};
  const auto say = [&](const char* text, int first) {
    const Verdict verdict = Next(Bytes(text));
    ASSERT_TRUE(OnVerdict(verdict, absl::MakeSpan(logprobs).subspan(
                                       first, verdict.token_ids.size()))
                    .has_value());
  };
  say("he", 0);
  say("llo!", 2);
  const Completion completion = Complete();
  EXPECT_EQ(completion.token_ids, Bytes("hello"));
  ASSERT_EQ(completion.logprobs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(completion.logprobs[i].token_id, completion.token_ids[i]);
    EXPECT_EQ(completion.logprobs[i].logprob, -1.0f - static_cast<float>(i));
  }
  ASSERT_EQ(sink_->chunks().size(), 2u);
  EXPECT_EQ(sink_->chunks()[0].logprobs.size(), 2u);
  EXPECT_EQ(sink_->chunks()[1].logprobs.size(), 3u);
}

TEST_F(SessionTest, RoundsAreCountedByWhatTheyAccepted) {
  request_.detailed_stats = true;
  for (const auto& [window, accepted] : {std::pair{4, 3}, {4, 0}, {2, 3}}) {
    Verdict verdict = Next(Bytes("x"));
    verdict.window = window;
    verdict.matched = std::min(window, accepted);
    verdict.verified = std::max(window, accepted);
    verdict.accepted = accepted;
    ASSERT_TRUE(OnVerdict(verdict).has_value());
  }
  Say(Bytes("."), FinishReason::kLength);
  const Completion completion = Complete();
  EXPECT_THAT(completion.acceptance_histogram, ElementsAre(2, 0, 0, 2));
  ASSERT_EQ(completion.rounds.size(), 4u);
  EXPECT_EQ(completion.rounds[2].drafted, 2);
  EXPECT_EQ(completion.rounds[2].accepted, 3);
}

TEST_F(SessionTest, TheEndOfSequenceTokenIsATokenButNoText) {
  request_.skip_special_tokens = false;
  std::vector<int32_t> ids = Bytes("hi");
  ids.push_back(ByteTokenizer::kEos);
  Say(ids, FinishReason::kEos);
  const Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kEos);
  EXPECT_EQ(completion.text, "hi");
  EXPECT_THAT(completion.token_ids, ElementsAreArray(ids));
}

TEST_F(SessionTest, AStopTokenIsATokenButNoTextUnlessAskedFor) {
  Say(Bytes("hi."), FinishReason::kStop);
  Completion completion = Complete();
  EXPECT_EQ(completion.finish, Finish::kStop);
  EXPECT_EQ(completion.text, "hi");
  EXPECT_EQ(completion.stop_match, "");
  EXPECT_EQ(completion.token_ids, Bytes("hi."));

  session_ = nullptr;
  request_.include_stop_string = true;
  Say(Bytes("hi."), FinishReason::kStop);
  EXPECT_EQ(Complete().text, "hi.");
}

TEST_F(SessionTest, SpecialTokensInTheMiddleShowOnlyWhenAskedFor) {
  Say({'a', ByteTokenizer::kEos, 'b'});  // ignore_eos: it goes on
  EXPECT_EQ(sink_->streamed_text(), "ab");
  session_ = nullptr;
  request_.skip_special_tokens = false;
  Say({'a', ByteTokenizer::kEos, 'b'});
  EXPECT_EQ(sink_->streamed_text(), "aba</s>b");
}

TEST_F(SessionTest, NoChunkSplitsACharacter) {
  Say({'x', 0xE2});
  Say({0x82});
  EXPECT_EQ(sink_->streamed_text(), "x");
  Say({0xAC, 'y'});
  EXPECT_EQ(sink_->streamed_text(), "x\xE2\x82\xACy");
  // The ids do not wait for the character.
  EXPECT_THAT(sink_->chunks()[1].token_ids, ElementsAre(0x82));
  Say({0xE2}, FinishReason::kLength);
  EXPECT_EQ(Complete().text, "x\xE2\x82\xACy\xEF\xBF\xBD");
}

TEST_F(SessionTest, ACharacterBegunByThePromptIsContinued) {
  request_.prompt_ids = {'a', 0xE2, 0x82};
  Say({0xAC, 'y'});
  EXPECT_EQ(sink_->streamed_text(), "\xE2\x82\xACy");
}

TEST_F(SessionTest, TimeIsSharedByRowsAndWaitingIsTheSessionsOwn) {
  using Kind = SpanRecord::Kind;
  Session& session = this->session();
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kPrefill, 0, 100, 3, 12));
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 100, 60, 2, 4));
  session.OnSpan(WorkerRole::kTarget,
                 Span(Kind::kWaitDraftTokens, 160, 7, 0, 0));
  session.OnSpan(WorkerRole::kTarget,
                 Span(Kind::kWaitAcknowledge, 170, 1000, 0, 0));
  session.OnSpan(WorkerRole::kDraft, Span(Kind::kPrefill, 0, 50, 1, 2));
  session.OnSpan(WorkerRole::kDraft, Span(Kind::kDraft, 50, 40, 1, 4));
  session.OnSpan(WorkerRole::kDraft, Span(Kind::kWaitVerdict, 90, 9, 0, 0));
  session.OnSpan(WorkerRole::kDraft, Span(Kind::kRollback, 99, 500, 0, 0));
  SpanRecord hidden = Span(Kind::kHidden, 99, 21, 0, 0);
  hidden.bytes = 64;
  session.OnSpan(WorkerRole::kDraft, hidden);
  session.OnSpan(WorkerRole::kDraft, hidden);
  Say(Bytes("x"), FinishReason::kLength);
  const Completion completion = Complete();
  EXPECT_EQ(completion.target_busy_ns, 25 + 30);
  EXPECT_EQ(completion.target_wait_ns, 7);
  EXPECT_EQ(completion.draft_busy_ns, 25 + 10);
  EXPECT_EQ(completion.draft_wait_ns, 9);
  EXPECT_EQ(completion.hidden_bytes, 128);
  EXPECT_EQ(completion.hidden_ns, 42);
  EXPECT_TRUE(completion.trace.empty());
  EXPECT_TRUE(completion.step_gaps_ns.empty());  // no trace was asked for
}

TEST_F(SessionTest, ATraceKeepsTheSpansByWorkerAndTheGapsBetweenSteps) {
  using Kind = SpanRecord::Kind;
  request_.trace = true;
  Session& session = this->session();
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 100, 60, 1, 1));
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 165, 60, 1, 1));
  session.OnSpan(WorkerRole::kDraft, Span(Kind::kDraft, 300, 1, 1, 1));
  session.OnSpan(WorkerRole::kTarget,
                 Span(Kind::kWaitDraftTokens, 225, 25, 0, 0));
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 250, 10, 1, 1));
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 263, 10, 1, 1));
  session.OnSpan(WorkerRole::kTarget,
                 Span(Kind::kWaitAcknowledge, 273, 7, 0, 0));
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 280, 10, 1, 1));
  Say(Bytes("x"), FinishReason::kLength);
  TraceLane target;
  target.address = "t";
  TraceLane draft;
  draft.role = WorkerRole::kDraft;
  draft.address = "d";
  session.Complete(target, draft, 1.0, 9000);
  const Completion completion = *sink_->completion();
  EXPECT_THAT(completion.step_gaps_ns, ElementsAre(5, 3));
  ASSERT_EQ(completion.trace.size(), 2u);
  EXPECT_EQ(completion.trace[0].address, "t");
  EXPECT_EQ(completion.trace[0].spans.size(), 7u);
  EXPECT_EQ(completion.trace[1].address, "d");
  EXPECT_EQ(completion.trace[1].spans.size(), 1u);
}

TEST_F(SessionTest, OnlyItsFirstTargetsCacheCounts) {
  Session& session = this->session();
  EXPECT_EQ(session.OnCached(1), 0) << "not opened";
  EXPECT_EQ(session.OnOpened(0), 0);
  EXPECT_EQ(session.OnCached(1), 1);
  TraceLane lost;
  session.OnWorkerLeft(lost);
  EXPECT_FALSE(session.OnOpened(1).has_value());
  EXPECT_EQ(session.OnCached(1), 0);
}

TEST_F(SessionTest, AWorkerThatLeftKeepsItsLaneOfTheTrace) {
  using Kind = SpanRecord::Kind;
  request_.trace = true;
  Session& session = this->session();
  TraceLane lost;
  lost.address = "t0";
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 100, 60, 1, 1));
  Say(std::vector<int32_t>(20, 'x'));
  session.OnWorkerLeft(lost);
  // The next one's clock is another: no gap lies between the two.
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 500, 60, 1, 1));
  session.OnSpan(WorkerRole::kTarget, Span(Kind::kVerify, 570, 60, 1, 1));
  // It was opened with all that is committed.
  EXPECT_FALSE(session.TakeAcknowledgement().has_value());
  TraceLane idle_draft;
  idle_draft.role = WorkerRole::kDraft;
  session.OnWorkerLeft(idle_draft);  // has done nothing: no lane
  Say(Bytes("y"), FinishReason::kLength);
  TraceLane target;
  target.address = "t1";
  session.Complete(target, absl::nullopt, 1.0, 9000);
  const Completion completion = *sink_->completion();
  EXPECT_THAT(completion.step_gaps_ns, ElementsAre(10));
  EXPECT_EQ(completion.target_busy_ns, 180);
  ASSERT_EQ(completion.trace.size(), 2u);
  EXPECT_EQ(completion.trace[0].address, "t1");
  EXPECT_EQ(completion.trace[0].spans.size(), 2u);
  EXPECT_EQ(completion.trace[1].address, "t0");
  EXPECT_EQ(completion.trace[1].spans.size(), 1u);
}

TEST_F(SessionTest, OtherSessionsRowsAreAveraged) {
  EXPECT_EQ(session().other_rows(), absl::nullopt);
  for (int i = 0; i < 100; ++i) {
    session().OnSpan(WorkerRole::kTarget,
                     Span(SpanRecord::Kind::kVerify, 10 * i, 5, 3, 10));
  }
  EXPECT_EQ(session().other_rows(), 7);
  EXPECT_NEAR(session().own_rows(), 3.0, 0.01);
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

}  // namespace
}  // namespace nacre::coordinator
