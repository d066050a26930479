#include "coordinator/dispatch/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Method;
using speculation::StopMark;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(DispatcherTest, WithoutATargetNothingStarts) {
  const auto sink = std::make_shared<RecordingSink>();
  EXPECT_EQ(dispatcher_.Start(Request("r"), sink).status().code(),
            absl::StatusCode::kUnavailable);
  AddDraft();  // serves no one alone
  EXPECT_EQ(dispatcher_.Start(Request("r"), sink).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(dispatcher_.model().has_value());
  EXPECT_EQ(sink->num_ends(), 0);
  // The failure left nothing behind: the id is free.
  const Worker target = AddTarget();
  Start("r");
}

TEST_F(DispatcherTest, AStartOpensTheSessionOnBothWorkers) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.stop_token_ids = {11};
  const Run run = Start(request);
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 1 draft 1 tokens 7,8")));
  EXPECT_THAT(
      draft.client->Take(),
      ElementsAre(absl::StrCat("open ", run.id, " epoch 1 tokens 7,8")));
  EXPECT_THAT(draft.client->last_end_ids, ElementsAre(11, ByteTokenizer::kEos));
  // The smallest of both heads, the draft's tokenizer and ours.
  EXPECT_EQ(draft.client->last_vocab_limit, ByteTokenizer::kVocabSize);
  EXPECT_GT(draft.client->last_draft_plan.lead_in_flow, 0);
  EXPECT_EQ(target.client->num_unsent(), 0);
  EXPECT_EQ(draft.client->num_unsent(), 0);
}

TEST_F(DispatcherTest, IgnoringEosTheDraftDoesNotEndThereEither) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.ignore_eos = true;
  Start(request);
  EXPECT_THAT(draft.client->last_end_ids, IsEmpty());
}

// Else the target would step alone, and the draft rest, until the plan comes.
TEST_F(DispatcherTest, ASessionIsOpenedWithItsPlan) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.method = Method::kSd;
  request.window = 4;
  Start(request);
  EXPECT_EQ(target.client->opened_target_plan.window, 4);
  EXPECT_EQ(target.client->opened_target_plan.gate_after_mismatch, 4);
  EXPECT_EQ(draft.client->opened_draft_plan.lead_after_mismatch, 4);
}

TEST_F(DispatcherTest, WithoutSpeculationNoDraftIsOpened) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.method = Method::kAr;
  const Run run = Start(request);
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 0 draft 0 tokens 7,8")));
  EXPECT_THAT(draft.client->Take(), IsEmpty());
  AddDraft("late");
  EXPECT_EQ(DraftAddress(run.id), "");
}

TEST_F(DispatcherTest, SessionsGoToTheLeastLoadedWorkers) {
  const Worker targets[] = {AddTarget("t0"), AddTarget("t1")};
  const Worker drafts[] = {AddDraft("d0"), AddDraft("d1"), AddDraft("d2")};
  std::vector<Run> runs;
  for (int i = 0; i < 6; ++i) runs.push_back(Start(absl::StrCat("r", i)));
  for (const Worker& target : targets) EXPECT_EQ(NumSessions(target), 3);
  for (const Worker& draft : drafts) EXPECT_EQ(NumSessions(draft), 2);
  const std::string freed = DraftAddress(runs[4].id);
  dispatcher_.Cancel(runs[4].id);
  EXPECT_EQ(DraftAddress(Start("next").id), freed);
}

TEST_F(DispatcherTest, ARunningRequestIdIsRefusedAndAnEndedOneIsFree) {
  const Worker target = AddTarget();
  const Run run = Start("r");
  const auto sink = std::make_shared<RecordingSink>();
  const absl::Status status = dispatcher_.Start(Request("r"), sink).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"r\""));
  EXPECT_EQ(NumSessions(target), 1);
  Verdict(target, run.id, 2, {'x'}, FinishReason::kLength);
  Start("r");
}

TEST_F(DispatcherTest, TheModelIsThatOfTheReadyTargets) {
  const Worker target = AddTarget("t0");
  EXPECT_EQ(dispatcher_.model()->address, "t0");
  dispatcher_.DrainWorker(target.id);
  EXPECT_FALSE(dispatcher_.model().has_value());
}

TEST_F(DispatcherTest, ATargetOfAnotherCheckpointIsRefused) {
  const Worker target = AddTarget();
  WorkerInfo other = Info(WorkerRole::kTarget, "other");
  other.fingerprint = "bigger";
  const absl::Status status =
      AddWorker(&dispatcher_, other, std::make_shared<RecordingClient>())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bigger"));
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  dispatcher_.RemoveWorker(target.id);
  EXPECT_TRUE(
      AddWorker(&dispatcher_, other, std::make_shared<RecordingClient>()).ok());
}

// --------------------------------------------------------------------- relays

TEST_F(DispatcherTest, ATailReachesTheTargetOnlyFromTheSessionsDraftAndEpoch) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft("d0");
  const Run run = Start();
  const Worker stranger = AddDraft("d1");
  target.client->Take();
  Tail(draft, run.id, 1, 2, {4, 5});
  EXPECT_THAT(
      target.client->Take(),
      ElementsAre(absl::StrCat("tail ", run.id, " epoch 1 base 2 at 2: 4,5")));
  Tail(draft, run.id, 0, 2, {4, 5});
  Tail(draft, run.id, 2, 2, {4, 5});
  Tail(draft, run.id + 1, 1, 2, {4, 5});
  Tail(stranger, run.id, 1, 2, {4, 5});
  Tail(target, run.id, 1, 2, {4, 5});  // a target has no tails
  EXPECT_THAT(target.client->Take(), IsEmpty());
}

TEST_F(DispatcherTest, AVerdictReachesTheClientAndTheDraft) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  draft.client->Take();
  Verdict(target, run.id, 2, {'h', 'i'});
  EXPECT_THAT(draft.client->Take(),
              ElementsAre(absl::StrCat("commit ", run.id, " at 2: 104,105")));
  EXPECT_EQ(run.sink->streamed_text(), "hi");
  Verdict(target, run.id, 2, {'h', 'i'});  // repeated
  Verdict(target, run.id, 9, {'h', 'i'});  // leaves a gap
  Verdict(draft, run.id, 4, {'x'});        // drafts do not judge
  EXPECT_THAT(draft.client->Take(), IsEmpty());
  EXPECT_EQ(run.sink->streamed_text(), "hi");
}

TEST_F(DispatcherTest, VerdictsOfAnotherTargetAreIgnored) {
  const Worker target = AddTarget("t0");
  const Run run = Start();
  const Worker other = AddTarget("t1");
  Verdict(other, run.id, 2, {'x'});
  EXPECT_EQ(run.sink->streamed_text(), "");
  Verdict(target, run.id, 2, {'x'});
  EXPECT_EQ(run.sink->streamed_text(), "x");
}

TEST_F(DispatcherTest, MeasurementsChangeThePlanOfBothWorkers) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.method = Method::kPearl;
  const Run run = Start(request);
  const int window = target.client->last_target_plan.window;
  // A draft token costs half a target step: gamma 2.
  wire::SessionEvents events;
  for (int i = 1; i <= 50; ++i) {
    SpanRecord span;
    span.session_id = run.id;
    span.kind = SpanRecord::Kind::kDraft;
    span.start_ns = 10000000 * i;
    span.duration_ns = 2500000;
    span.rows = span.batch_rows = 1;
    events.spans.push_back(span);
  }
  Say(draft, events);
  events.spans.clear();
  for (int i = 1; i <= 50; ++i) {
    SpanRecord span;
    span.session_id = run.id;
    span.kind = SpanRecord::Kind::kVerify;
    span.start_ns = 10000000 * i;
    span.duration_ns = 50000000;
    span.rows = span.batch_rows = 1;
    events.spans.push_back(span);
  }
  Say(target, events);
  Verdict(target, run.id, 2, {'x'});
  EXPECT_GT(target.client->num_plans(), 0);
  EXPECT_GT(draft.client->num_plans(), 0);
  EXPECT_GT(target.client->last_target_plan.window, window);
}

// They would make the draft look faster than it is.
TEST_F(DispatcherTest, AbandonedStepsAreNoStepTimes) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  const int plans = draft.client->num_plans();
  wire::SessionEvents events;
  for (int i = 1; i <= 50; ++i) {
    SpanRecord span;
    span.session_id = run.id;
    span.kind = SpanRecord::Kind::kDraft;
    span.start_ns = 10000000 * i;
    span.duration_ns = 1000;
    span.rows = span.batch_rows = 1;
    span.abandoned = true;
    events.spans.push_back(span);
  }
  Say(draft, events);
  Verdict(target, run.id, 2, {'x'});
  EXPECT_EQ(draft.client->num_plans(), plans);
  for (SpanRecord& span : events.spans) {
    span.abandoned = false;
    span.start_ns += 1000000000;
  }
  Say(draft, events);
  Verdict(target, run.id, 3, {'y'});
  EXPECT_GT(draft.client->num_plans(), plans);
}

TEST_F(DispatcherTest, WhereEachRowCostsAStepDraftsRestUnderLoad) {
  WorkerInfo info = Info(WorkerRole::kTarget, "steep");
  info.step_times_ns = {{1, 5000000}, {64, 320000000}};
  Worker target;
  target.client = std::make_shared<RecordingClient>();
  const auto target_id = AddWorker(&dispatcher_, info, target.client);
  ASSERT_TRUE(target_id.ok());
  const Worker draft = AddDraft();
  const auto rests = [&] { return draft.client->last_draft_plan.rests(); };
  const Run first = Start("first");
  EXPECT_FALSE(rests());
  const Run second = Start("second");
  EXPECT_TRUE(rests());
  dispatcher_.Cancel(first.id);
  dispatcher_.Cancel(second.id);
  Start("third");
  EXPECT_FALSE(rests());
}

// A session whose draft rests measures nothing: it hears from others when the
// draft has become useful.
TEST_F(DispatcherTest, AUselessDraftRestsUntilOthersFindItUseful) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const auto rests = [&] { return draft.client->last_draft_plan.rests(); };
  const Run first = Start("first");
  int length = 2;
  const auto compare = [&](int verified, int accepted) {
    speculation::Verdict verdict;
    verdict.base_length = length++;
    verdict.token_ids = {'x'};
    verdict.verified = verified;
    verdict.accepted = accepted;
    wire::TargetEvents events;
    events.verdicts.push_back({first.id, std::move(verdict)});
    dispatcher_.OnEvents(target.id, events);
  };
  EXPECT_FALSE(rests());
  for (int i = 0; i < 4; ++i) compare(40, 0);
  EXPECT_TRUE(rests());
  const Run second = Start("second");
  EXPECT_TRUE(draft.client->opened_draft_plan.rests());
  for (int i = 0; i < 4; ++i) compare(40, 40);
  dispatcher_.Cancel(first.id);
  const auto plans = draft.client->num_plans();
  Verdict(target, second.id, 2, {'y'});
  EXPECT_EQ(draft.client->num_plans(), plans + 1);
  EXPECT_FALSE(rests());
}

// A step that serves another session, too, goes on for that.
TEST_F(DispatcherTest, OnlyAStepForOneSessionIsAbandoned) {
  WorkerInfo info = Info(WorkerRole::kTarget, "flat");
  info.step_times_ns = {{1, 20000000}, {64, 20000000}};
  const auto target_id =
      AddWorker(&dispatcher_, info, std::make_shared<RecordingClient>());
  ASSERT_TRUE(target_id.ok());
  info = Info(WorkerRole::kDraft, "draft");
  info.step_times_ns = {{1, 5000000}, {2, 5000000}};
  // Of a session alone, then of a second one.
  const auto plans = [&] {
    const auto client = std::make_shared<RecordingClient>();
    const uint64_t draft_id = *AddWorker(&dispatcher_, info, client);
    std::vector<speculation::DraftPlan> plans;
    std::vector<Run> runs;
    for (const char* id : {"first", "second"}) {
      runs.push_back(Start(id));
      plans.push_back(client->last_draft_plan);
    }
    for (const Run& run : runs) dispatcher_.Cancel(run.id);
    dispatcher_.RemoveWorker(draft_id);
    return plans;
  };
  const std::vector<speculation::DraftPlan> finishes = plans();
  info.abandons_steps = true;
  const std::vector<speculation::DraftPlan> abandons = plans();
  EXPECT_GT(abandons[0].lead_in_flow, finishes[0].lead_in_flow);
  EXPECT_EQ(abandons[1].lead_in_flow, finishes[1].lead_in_flow);
}

// One way from the draft to the target is half of each one's round trip.
TEST_F(DispatcherTest, ThePlanKnowsHowFarTheWorkersAre) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  target.client->round_trip = 3000000;
  draft.client->round_trip = 5000000;
  RequestSpec request = Request("r");
  request.method = Method::kSd;
  request.window = 2;
  Start(request);
  // Twice: there and back, and three tokens of 5 ms.
  EXPECT_EQ(target.client->last_target_plan.gate_timeout_ns,
            2 * (2 * 4000000 + 3 * 5000000));
}

TEST_F(DispatcherTest, ADraftProposesNothingThatItsTargetDoesNotHave) {
  WorkerInfo info = Info(WorkerRole::kTarget, "small");
  info.model_vocab_size = 100;
  ASSERT_TRUE(
      AddWorker(&dispatcher_, info, std::make_shared<RecordingClient>()).ok());
  const Worker draft = AddDraft();
  Start();
  EXPECT_EQ(draft.client->last_vocab_limit, 100);
}

// What one draft gets wrong is no reason to expect less of another.
TEST_F(DispatcherTest, EachDraftHasItsOwnAcceptance) {
  const Worker target = AddTarget();
  const auto alpha_after = [&](const Worker& draft, const char* id) {
    const Run run = Start(id);
    EXPECT_NE(DraftAddress(run.id), "");
    EXPECT_EQ(NumSessions(draft), 1);
    Verdict(target, run.id, 2, {'x'}, FinishReason::kLength);
    return run.sink->completion()->alpha;
  };
  const Worker bad = AddDraft("bad");
  const Run run = Start("measured");
  for (int i = 0; i < 10; ++i) {
    speculation::Verdict verdict;
    verdict.base_length = 2 + i;
    verdict.token_ids = {'x'};
    verdict.verified = verdict.window = 10;
    wire::TargetEvents events;
    events.verdicts.push_back({run.id, verdict});
    dispatcher_.OnEvents(target.id, events);
  }
  dispatcher_.Cancel(run.id);
  EXPECT_LT(alpha_after(bad, "again"), 0.2);
  dispatcher_.RemoveWorker(bad.id);
  const Worker good = AddDraft("good");
  EXPECT_DOUBLE_EQ(alpha_after(good, "good"),
                   speculation::AcceptanceEstimator().alpha());
}

TEST_F(DispatcherTest, TheTargetIsAcknowledgedWhenTheClientKeepsUp) {
  const Worker target = AddTarget();
  const Run run = Start();
  target.client->Take();
  const std::string acknowledgement =
      absl::StrCat("acknowledge ", run.id, " length 22");
  run.sink->set_pending_chunks(100);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  EXPECT_THAT(target.client->Take(), IsEmpty());
  run.sink->set_pending_chunks(0);
  dispatcher_.OnSinkDrained(run.id);
  EXPECT_THAT(target.client->Take(), ElementsAre(acknowledgement));
  dispatcher_.OnSinkDrained(run.id);
  dispatcher_.OnSinkDrained(run.id + 1);
  EXPECT_THAT(target.client->Take(), IsEmpty());
  EXPECT_EQ(target.client->num_unsent(), 0);
}

// ------------------------------------------------------------- losing a draft

}  // namespace
}  // namespace nacre::coordinator
