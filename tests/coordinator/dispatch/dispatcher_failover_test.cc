// Targets that are lost or full: their sessions go on elsewhere.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kTimeout = 30 * kSecond;
constexpr int kAborted = 10, kInternal = 13, kInvalid = 3, kExhausted = 8;

class FailoverTest : public DispatcherTest {};

// ----------------------------------------------------------------------- lost

TEST_F(FailoverTest, ARefusalThatIsOlderThanTheMoveDoesNotCostTheDraft) {
  const Worker first = AddTarget("t0");
  const Worker draft = AddDraft();
  const Run run = Start();
  const Worker second = AddTarget("t1");
  dispatcher_.RemoveWorker(first.id);  // opens epoch 2 on the same draft
  second.client->Take();
  Fail(draft, run.id, kExhausted, "no room", /*epoch=*/1);
  EXPECT_THAT(second.client->Take(), IsEmpty());
  EXPECT_EQ(NumSessions(draft), 1);
  EXPECT_EQ(DraftAddress(run.id), "draft");
  draft.client->Take();
  Fail(draft, run.id, kExhausted, "no room", /*epoch=*/3);
  EXPECT_THAT(second.client->Take(),
              ElementsAre(absl::StrCat("lost ", run.id)));
  EXPECT_EQ(NumSessions(draft), 0);
}

// Also one that comes when the draft has closed that opening.
TEST_F(FailoverTest, ADraftsFailureOfAnotherOpeningDoesNotCostTheDraft) {
  const Worker first = AddTarget("t0");
  const Worker draft = AddDraft();
  const Run run = Start();
  const Worker second = AddTarget("t1");
  dispatcher_.RemoveWorker(first.id);  // opens it anew on the same draft
  Closed(draft, run.id);
  second.client->Take();
  Fail(draft, run.id, kExhausted, "no room", /*epoch=*/1);
  EXPECT_THAT(second.client->Take(), IsEmpty());
  EXPECT_EQ(DraftAddress(run.id), "draft");
}

TEST_F(FailoverTest, ALostTargetsSessionGoesOnOnAnEqualOneWithTheSameTokens) {
  const Worker first = AddTarget("t0");
  const Worker draft = AddDraft();
  const Run run = Start();
  const Worker second = AddTarget("t1");
  Verdict(first, run.id, 2, {'h', 'i'});
  draft.client->Take();
  dispatcher_.RemoveWorker(first.id);
  dispatcher_.RemoveWorker(first.id);
  EXPECT_THAT(second.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 3 draft 1 tokens 7,8,104,105")));
  EXPECT_THAT(draft.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id),
                          absl::StrCat("open ", run.id,
                                       " epoch 3 tokens 7,8,104,105")));
  EXPECT_EQ(draft.client->num_opened_too_early(), 0);
  EXPECT_EQ(draft.client->num_unsent(), 0);
  EXPECT_EQ(second.client->num_unsent(), 0);
  EXPECT_EQ(NumSessions(draft), 1);
  EXPECT_EQ(NumSessions(second), 1);

  // What was on its way when the target was lost changes nothing.
  Tail(draft, run.id, 1, 4, {'x'});
  Tail(draft, run.id, 2, 4, {'x'});
  Verdict(first, run.id, 4, {'?'});
  EXPECT_THAT(second.client->Take(), IsEmpty());
  Tail(draft, run.id, 3, 4, {'!'});
  EXPECT_EQ(second.client->Take().size(), 1u);
  Verdict(second, run.id, 4, {'!'}, FinishReason::kLength);
  EXPECT_EQ(run.sink->streamed_text(), "hi!");
  EXPECT_THAT(run.sink->completion()->token_ids, ElementsAre('h', 'i', '!'));
  EXPECT_EQ(run.sink->completion()->stats.rounds, 2);
  EXPECT_EQ(dispatcher_.Tick(), kNever);
}

// What a target said of the prompt is not computed again. Nothing that does not
// go on from there counts, and no token comes before all of it.
TEST_F(FailoverTest, AnotherTargetTellsTheRestOfThePrompt) {
  const auto tell = [this](const Worker& target, uint64_t session_id, int first,
                           const std::vector<int32_t>& ids) {
    wire::TargetEvents events;
    wire::PromptLogprobs& told = events.prompt_logprobs.emplace_back();
    told.session_id = session_id;
    told.first_position = first;
    for (const int32_t id : ids) {
      told.logprobs.push_back({id, -0.5f * static_cast<float>(id), {}});
    }
    dispatcher_.OnEvents(target.id, events);
  };
  const Worker first = AddTarget("t0");
  RequestSpec request = Request("r");
  request.prompt_ids = {7, 8, 9, 10};
  request.prompt_logprobs = 0;
  const Run run = Start(request);
  EXPECT_EQ(first.client->last_prompt_logprobs, 0);
  const Worker second = AddTarget("t1");
  tell(first, run.id, 1, {8});
  tell(first, run.id, 1, {8});          // once more
  tell(first, run.id, 3, {10});         // not the next one
  tell(first, run.id, 2, {10});         // another token
  tell(first, run.id, 2, {9, 10, 11});  // more than the prompt has
  tell(first, run.id, -1, {});
  Verdict(first, run.id, 4, {'x'});  // before the rest of the prompt
  EXPECT_TRUE(run.sink->chunks().empty());
  dispatcher_.RemoveWorker(first.id);
  EXPECT_EQ(second.client->last_prompt_logprobs, 1);
  tell(second, run.id, 2, {9, 10});
  Verdict(second, run.id, 4, {'h'});
  Verdict(second, run.id, 5, {'i'}, FinishReason::kLength);
  ASSERT_EQ(run.sink->chunks().size(), 2u);
  const std::vector<TokenLogprobs> expected = {
      {8, -4.0f, {}}, {9, -4.5f, {}}, {10, -5.0f, {}}};
  EXPECT_EQ(run.sink->chunks()[0].prompt_logprobs, expected);
  EXPECT_THAT(run.sink->chunks()[1].prompt_logprobs, IsEmpty());
  EXPECT_EQ(run.sink->completion()->prompt_logprobs, expected);
  EXPECT_EQ(run.sink->streamed_text(), "hi");
}

TEST_F(FailoverTest, ManySessionsSpreadOverTheTargetsThatAreLeft) {
  const Worker first = AddTarget("t0");
  std::vector<Run> runs;
  for (int i = 0; i < 6; ++i) runs.push_back(Start(absl::StrCat("r", i)));
  const Worker second = AddTarget("t1");
  const Worker third = AddTarget("t2");
  dispatcher_.RemoveWorker(first.id);
  EXPECT_EQ(NumSessions(second), 3);
  EXPECT_EQ(NumSessions(third), 3);
}

TEST_F(FailoverTest, WithoutAnotherTargetTheSessionIsHeldUntilOneAttaches) {
  const Worker first = AddTarget("t0");
  const Worker draft = AddDraft();
  const Run run = Start();
  Verdict(first, run.id, 2, {'h'});
  draft.client->Take();
  now_ns_ = 5 * kSecond;
  dispatcher_.RemoveWorker(first.id);
  EXPECT_THAT(wakes_, ElementsAre(5 * kSecond + kTimeout));
  EXPECT_EQ(TargetAddress(run.id), "");
  EXPECT_EQ(DraftAddress(run.id), "");
  EXPECT_THAT(draft.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  // Nothing that happens meanwhile needs a target.
  Tail(draft, run.id, 1, 3, {'x'});
  dispatcher_.OnSinkDrained(run.id);
  const Worker other_draft = AddDraft("d1");
  EXPECT_THAT(other_draft.client->Take(), IsEmpty());
  now_ns_ = 5 * kSecond + kTimeout - 1;
  EXPECT_EQ(dispatcher_.Tick(), 5 * kSecond + kTimeout);
  EXPECT_EQ(run.sink->num_ends(), 0);

  const Worker second = AddTarget("t1");
  EXPECT_THAT(second.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 3 draft 1 tokens 7,8,104")));
  EXPECT_EQ(TargetAddress(run.id), "t1");
  now_ns_ += kTimeout;
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  Verdict(second, run.id, 3, {'i'}, FinishReason::kEos);
  EXPECT_THAT(run.sink->completion()->token_ids, ElementsAre('h', 'i'));
}

TEST_F(FailoverTest, OnlyATargetThatComputesTheSameBitsWillDo) {
  const Worker first = AddKind("t0", "cpu/avx2/bf16");
  const Worker other = AddKind("t1", "cpu/avx512/bf16");
  Verdict(first, Start().id, 2, {'x'});  // one session each
  const Run run = Start("second");
  Verdict(other, run.id, 2, {'h', 'i'});
  other.client->Take();
  dispatcher_.RemoveWorker(other.id);
  EXPECT_EQ(TargetAddress(run.id), "");
  dispatcher_.RemoveWorker(first.id);
  // No target is left to compare with: one with other weights may attach.
  WorkerInfo info = Info(WorkerRole::kTarget, "t2");
  info.numerics_id = "cpu/avx512/bf16";
  info.fingerprint = "bigger";
  const Worker alien = AddWith(info);
  EXPECT_THAT(alien.client->Take(), IsEmpty());
  EXPECT_EQ(TargetAddress(run.id), "");
  now_ns_ += kTimeout;
  dispatcher_.Tick();
  const absl::Status error = run.sink->error();
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  const std::string message(error.message());
  EXPECT_THAT(message, HasSubstr("t1"));
  EXPECT_THAT(message, HasSubstr("2 tokens"));
  EXPECT_THAT(message, HasSubstr("cpu/avx512/bf16"));
  EXPECT_THAT(message, HasSubstr("30s"));
  EXPECT_TRUE(dispatcher_.sessions().empty());
  EXPECT_EQ(run.sink->num_ends(), 1);
}

TEST_F(FailoverTest, WithAnEqualOneBesideAnUnequalOneItTakesTheEqualOne) {
  const Worker first = AddKind("t0", "a");
  const Run run = Start();
  AddKind("t1", "b");
  const Worker equal = AddKind("t2", "a");
  dispatcher_.RemoveWorker(first.id);
  EXPECT_EQ(TargetAddress(run.id), "t2");
}

TEST_F(FailoverTest, ACancelledOrLateClientIsHonouredWhileItsSessionIsHeld) {
  const Worker target = AddTarget();
  const Run cancelled = Start("cancelled");
  RequestSpec request = Request("late");
  request.deadline_ns = 2 * kSecond;
  const Run late = Start(request);
  dispatcher_.RemoveWorker(target.id);
  dispatcher_.Cancel(cancelled.id);
  EXPECT_EQ(cancelled.sink->error().code(), absl::StatusCode::kCancelled);
  now_ns_ = 2 * kSecond;
  dispatcher_.Tick();
  EXPECT_EQ(late.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(dispatcher_.sessions().empty());
  const Worker second = AddTarget("t1");
  EXPECT_THAT(second.client->Take(), IsEmpty());
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  Start("late");  // the id is free again
}

TEST_F(FailoverTest, ARequestThatLosesTargetAfterTargetWithoutATokenIsEnded) {
  Run run;
  Worker target = AddTarget("t0");
  run = Start();
  for (int i = 1; i <= 5; ++i) {
    const Worker next = AddTarget(absl::StrCat("t", i));
    dispatcher_.RemoveWorker(target.id);
    EXPECT_EQ(TargetAddress(run.id), absl::StrCat("t", i));
    target = next;
  }
  // A token makes up for all of it.
  Verdict(target, run.id, 2, {'x'});
  for (int i = 1; i <= 6; ++i) {
    const Worker next = AddTarget(absl::StrCat("u", i));
    dispatcher_.RemoveWorker(target.id);
    target = next;
  }
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(run.sink->error().message()),
              HasSubstr("6 targets in a row"));
  EXPECT_EQ(NumSessions(target), 0);
}

TEST_F(FailoverTest, EachTokenForgivesTheTargetsLostBeforeIt) {
  Worker target = AddTarget("t0");
  const Run run = Start();
  for (int i = 1; i <= 8; ++i) {
    const Worker next = AddTarget(absl::StrCat("t", i));
    dispatcher_.RemoveWorker(target.id);
    EXPECT_EQ(TargetAddress(run.id), absl::StrCat("t", i));
    target = next;
    Verdict(target, run.id, 1 + i, {'x'});
  }
  EXPECT_EQ(run.sink->num_ends(), 0);
}

TEST_F(FailoverTest, EachLossHasItsOwnTimeout) {
  const Worker first = AddTarget("t0");
  const Run run = Start();
  Verdict(first, run.id, 2, {'x'});
  dispatcher_.RemoveWorker(first.id);
  const Worker second = AddTarget("t1");
  Verdict(second, run.id, 3, {'y'});
  now_ns_ += 2 * kTimeout;
  Fail(second, run.id, kAborted, "the lease has ended");
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ += kTimeout - 1;
  dispatcher_.Tick();
  EXPECT_EQ(run.sink->num_ends(), 0);
  EXPECT_EQ(TargetAddress(run.id), "t1");
}

// -------------------------------------------------------------------- refused

TEST_F(FailoverTest, ATargetWithoutRoomIsNotTheLastWordWhileThereIsAnother) {
  const Worker full = AddTarget("t0");
  const Worker roomy = AddTarget("t1");
  const Run run = Start();
  full.client->Take();
  Fail(full, run.id, kExhausted, "no KV room");
  EXPECT_THAT(full.client->Take(), IsEmpty());  // it has closed it itself
  EXPECT_EQ(TargetAddress(run.id), "t1");
  EXPECT_EQ(NumSessions(full), 0);
  // Sessions of lost streams may hold what was said to be free.
  Fail(roomy, run.id, kExhausted, "no KV room here either");
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ += kSecond;
  dispatcher_.Tick();
  EXPECT_EQ(NumSessions(full) + NumSessions(roomy), 1);
  Fail(NumSessions(full) == 1 ? full : roomy, run.id, kExhausted, "still none");
  now_ns_ += kTimeout;
  dispatcher_.Tick();  // asks a last time
  EXPECT_EQ(run.sink->num_ends(), 0);
}

TEST_F(FailoverTest, ARequestThatNoTargetHasRoomForEndsAfterTheTimeout) {
  const Worker full = AddTarget("t0");
  const Run run = Start();
  Fail(full, run.id, kExhausted, "no KV room");
  now_ns_ = 1000 + kTimeout;
  dispatcher_.Tick();  // asks a last time
  Fail(full, run.id, kExhausted, "no KV room");
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(run.sink->error().message()),
              HasSubstr("no KV room"));
  EXPECT_EQ(run.sink->num_ends(), 1);
}

TEST_F(FailoverTest, ARunningSessionAsksAFullTargetAgainUntilTheTimeout) {
  const Worker first = AddTarget("t0");
  const Run run = Start();
  Verdict(first, run.id, 2, {'x'});
  dispatcher_.RemoveWorker(first.id);
  const Worker full = AddTarget("t1");
  for (int second = 0; second < 29; ++second) {
    EXPECT_EQ(full.client->Take().size(), 1u) << second;
    Fail(full, run.id, kExhausted, "no KV room");
    EXPECT_THAT(full.client->Take(), IsEmpty());
    EXPECT_EQ(dispatcher_.Tick(), now_ns_ + kSecond);
    now_ns_ += kSecond;
    dispatcher_.Tick();
  }
  EXPECT_EQ(full.client->Take().size(), 1u);
  Fail(full, run.id, kExhausted, "no KV room");
  now_ns_ = 1000 + kTimeout - 1;
  dispatcher_.Tick();
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ = 1000 + kTimeout;
  dispatcher_.Tick();  // asks a last time
  EXPECT_EQ(full.client->Take().size(), 1u);
  Fail(full, run.id, kExhausted, "no KV room");
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(run.sink->error().message()),
              HasSubstr("no KV room"));
}

// Not at once again: only time or a change is worth the next question.
TEST_F(FailoverTest, WhereNoTargetCanBeAskedASessionWaitsForChangeOrItsEnd) {
  const Worker target = AddTarget("t0", 64);
  const Run run = Start(Sized("r", 64));
  Verdict(target, run.id, 2, {'x'});
  Fail(target, run.id, kExhausted, "no KV room");
  Start(Sized("other", 64));  // takes the room that the target denied
  EXPECT_EQ(NumSessions(target), 1);
  now_ns_ += kSecond;
  EXPECT_EQ(dispatcher_.Tick(), 1000 + kTimeout);
  EXPECT_EQ(run.sink->num_ends(), 0);
}

class ShortFailoverTest : public DispatcherTest {
 protected:
  ShortFailoverTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->failover_timeout_ns = kSecond / 100;
        }) {}
};

// A target that has lost its connection may still be at a step of what it had.
TEST_F(ShortFailoverTest, AFullTargetIsAskedOnceMoreWhenTheTimeIsOver) {
  const Worker first = AddTarget("t0");
  const Run run = Start();
  const Run other = Start("other");
  Verdict(first, run.id, 2, {'x'});
  Verdict(first, other.id, 2, {'x'});
  const Worker full = AddTarget("t1");
  dispatcher_.DrainWorker(first.id);
  Fail(full, run.id, kExhausted, "no KV room");
  Fail(full, other.id, kExhausted, "no KV room");
  full.client->Take();
  now_ns_ += kSecond / 100;
  dispatcher_.Tick();
  EXPECT_EQ(full.client->Take().size(), 2u);
  Verdict(full, run.id, 3, {'y'});
  EXPECT_EQ(run.sink->streamed_text(), "xy");
  Fail(full, other.id, kExhausted, "no KV room");
  EXPECT_EQ(other.sink->error().code(), absl::StatusCode::kUnavailable);
}

TEST_F(FailoverTest, ATargetThatForgotASessionGetsItBack) {
  const Worker target = AddTarget();
  const Run run = Start();
  Verdict(target, run.id, 2, {'x'});
  target.client->Take();
  Fail(target, run.id, kAborted, "the lease has ended");
  EXPECT_THAT(target.client->Take(), IsEmpty());
  now_ns_ += kSecond;
  dispatcher_.Tick();
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 1 draft 0 tokens 7,8,120")));
}

// Else each event would look at every held session.
TEST_F(FailoverTest, EventsThatChangeNothingAskForNoHeldSession) {
  const Worker target = AddTarget();
  const Run held = Start("held");
  const Run other = Start("other");
  Verdict(target, held.id, 2, {'x'});
  Fail(target, held.id, kAborted, "the lease has ended");
  now_ns_ += kSecond;
  target.client->Take();
  Verdict(target, other.id, 2, {'y'});
  EXPECT_EQ(TargetAddress(held.id), "");
  EXPECT_THAT(target.client->Take(), IsEmpty());
  // One that may have made room does.
  Verdict(target, other.id, 3, {'z'}, FinishReason::kLength);
  Closed(target, other.id);
  EXPECT_EQ(TargetAddress(held.id), "target");
}

TEST_F(FailoverTest, ABrokenDeviceMovesTheSessionOrEndsIt) {
  const Worker broken = AddTarget("t0");
  const Run run = Start();
  const Worker well = AddTarget("t1");
  Fail(broken, run.id, kInternal, "the forward failed");
  EXPECT_EQ(TargetAddress(run.id), "t1");
  dispatcher_.RemoveWorker(broken.id);
  Fail(well, run.id, kInternal, "the forward failed");
  EXPECT_EQ(run.sink->error(), absl::InternalError("the forward failed"));
}

TEST_F(FailoverTest, ABrokenDevicesSessionWaitsForAnEqualTargetThatIsFull) {
  const Worker broken = AddTarget("t0", 64);
  const Run run = Start(Sized("r", 64));
  const Worker full = AddTarget("t1", 64);
  const Run other = Start(Sized("other", 64));
  Verdict(broken, run.id, 2, {'x'});
  Fail(broken, run.id, kInternal, "NaN");
  EXPECT_EQ(run.sink->num_ends(), 0);
  EXPECT_EQ(TargetAddress(run.id), "");
  broken.client->Take();
  // The broken one has room, but is not asked again.
  now_ns_ += 2 * kSecond;
  dispatcher_.Tick();
  EXPECT_THAT(broken.client->Take(), IsEmpty());
  Verdict(full, other.id, 2, {'x'}, FinishReason::kLength);
  Closed(full, other.id);
  EXPECT_EQ(TargetAddress(run.id), "t1");
  // Nor when it is the only one that is left.
  Fail(full, run.id, kInternal, "NaN");
  EXPECT_EQ(run.sink->error(), absl::InternalError("NaN"));
}

TEST_F(FailoverTest, ABrokenDevicesSessionWaitsNoLongerThanOthers) {
  const Worker broken = AddTarget("t0", 64);
  const Run run = Start(Sized("r", 64));
  AddTarget("t1", 64);
  Start(Sized("other", 64));
  Fail(broken, run.id, kInternal, "NaN");
  now_ns_ += kTimeout - 1;
  dispatcher_.Tick();
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ += 1;
  dispatcher_.Tick();
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(run.sink->error().message()), HasSubstr("NaN"));
}

// One too small for it, one of another kind and one that drains are no reason
// to wait.
TEST_F(FailoverTest, ABrokenDevicesSessionWaitsForNoOtherTarget) {
  const Worker broken = AddKind("t0", "a", 64);
  const Run run = Start(Sized("r", 64));
  AddKind("small", "a", 32);
  AddKind("other", "b", 64);
  const Worker draining = AddKind("draining", "a", 64);
  Start(Sized("on it or on the other", 64));
  Start(Sized("on what is left of them", 64));
  dispatcher_.DrainWorker(draining.id);
  Fail(broken, run.id, kInternal, "NaN");
  EXPECT_EQ(run.sink->error(), absl::InternalError("NaN"));
}

TEST_F(FailoverTest, WhatIsWrongWithTheRequestIsWrongEverywhere) {
  const Worker target = AddTarget("t0");
  const Worker other = AddTarget("t1");
  const Run run = Start();
  Fail(target, run.id, kInvalid, "prompt_length");
  EXPECT_EQ(run.sink->error(), absl::InvalidArgumentError("prompt_length"));
  EXPECT_THAT(other.client->Take(), IsEmpty());
}

// ------------------------------------------------------------------------ end

TEST_F(FailoverTest, EndAllTellsEveryClientHowFarItGot) {
  const Worker target = AddTarget();
  const Run running = Start("running");
  Verdict(target, running.id, 2, {'x', 'y'});
  const Run second = Start("second");
  dispatcher_.EndAll();
  EXPECT_EQ(running.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(running.sink->error().message()),
              HasSubstr("2 tokens"));
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(dispatcher_.sessions().empty());
  EXPECT_EQ(target.client->num_unsent(), 0);
}

}  // namespace
}  // namespace nacre::coordinator
