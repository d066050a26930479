// Workers that drain or hang: what they have moves as far as there is room.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using ::testing::ElementsAre;

constexpr int64_t kMoveTimeout = 30'000'000'000;  // of failover

class DrainTest : public DispatcherTest {};

TEST_F(DrainTest, ADrainingTargetsSessionsMoveToAnEqualOne) {
  const Worker first = AddTarget("t0");
  const Worker draft = AddDraft();
  const Run run = Start();
  const Worker second = AddTarget("t1");
  Verdict(first, run.id, 2, {'h'});
  first.client->Take();
  draft.client->Take();
  dispatcher_.DrainWorker(first.id);
  EXPECT_THAT(first.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  EXPECT_THAT(second.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 3 draft 1 tokens 7,8,104")));
  EXPECT_EQ(draft.client->Take().size(), 2u);
  EXPECT_EQ(draft.client->num_opened_too_early(), 0);
  EXPECT_EQ(NumSessions(first), 0);
  Verdict(first, run.id, 3, {'i'});  // of before it heard
  Verdict(second, run.id, 3, {'i'}, FinishReason::kEos);
  EXPECT_THAT(run.sink->completion()->token_ids, ElementsAre('h', 'i'));
}

TEST_F(DrainTest, ADrainTakesOffOnlyWhatHasRoomElsewhere) {
  const Worker first = AddTarget("t0", 256);
  const Worker draft = AddDraft();
  std::vector<Run> runs;
  for (const char* id : {"a", "b", "c"}) runs.push_back(Start(Sized(id, 64)));
  const Worker second = AddTarget("t1", 64);
  first.client->Take();
  dispatcher_.DrainWorker(first.id);
  EXPECT_THAT(first.client->Take(),
              ElementsAre(absl::StrCat("close ", runs[0].id)));
  EXPECT_EQ(NumSessions(first), 2);
  EXPECT_EQ(NumSessions(second), 1);
  EXPECT_EQ(draft.client->num_opened_too_early(), 0);
  // The others go on where they are, for however long.
  now_ns_ += 2 * kMoveTimeout;
  dispatcher_.Tick();
  Verdict(first, runs[1].id, 2, {'x'});
  for (const Run& run : runs) EXPECT_EQ(run.sink->num_ends(), 0);
  // One that has begun takes the next room before those that have not.
  const Run queued = Start(Sized("queued", 64));
  Verdict(second, runs[0].id, 2, {'x'}, FinishReason::kLength);
  Closed(second, runs[0].id);
  EXPECT_THAT(first.client->Take(),
              ElementsAre(absl::StrCat("close ", runs[1].id)));
  EXPECT_EQ(TargetAddress(runs[1].id), "t1");
  EXPECT_EQ(TargetAddress(runs[2].id), "t0");
  EXPECT_EQ(TargetAddress(queued.id), "no such session");
  EXPECT_EQ(dispatcher_.Tick(), 1000 + 4 * kMoveTimeout);  // the queue's
  // The last one ends on the draining target, which is empty then.
  Verdict(first, runs[2].id, 2, {'x'}, FinishReason::kLength);
  EXPECT_EQ(NumSessions(first), 0);
}

// It ran, though it has said nothing yet: a refusal is not its end.
TEST_F(DrainTest, AMovedSessionWaitsWhereItFindsNoRoom) {
  const Worker t0 = AddTarget("t0");
  const Run run = Start();
  const Worker t1 = AddTarget("t1");
  dispatcher_.DrainWorker(t0.id);
  Fail(t1, run.id, 8, "no KV room");
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ += 1'000'000'000;
  dispatcher_.Tick();
  EXPECT_EQ(TargetAddress(run.id), "t1");
}

class ReturnTest : public DrainTest {
 protected:
  // The session has left t0 and come back before t0 has heard of it.
  ReturnTest() {
    Verdict(t0_, run_.id, 2, {'h'});
    const Worker t1 = AddTarget("t1");
    dispatcher_.DrainWorker(t0_.id);
    dispatcher_.ResumeWorker(t0_.id);
    t0_.client->Take();
    dispatcher_.DrainWorker(t1.id);
    EXPECT_THAT(t0_.client->Take(),
                ElementsAre(absl::StrCat("open ", run_.id,
                                         " epoch 2 draft 0 tokens 7,8,104")));
  }

  const Worker t0_ = AddTarget("t0", 4096);
  const Run run_ = Start();
};

TEST_F(ReturnTest, AVerdictOfTheEarlierOpeningChangesNothing) {
  Verdict(t0_, run_.id, 3, {'x', 'x'});
  EXPECT_EQ(run_.sink->streamed_text(), "h");
  EXPECT_EQ(dispatcher_.sessions()[0].generated_tokens, 1);
  // Nor one that comes with the close.
  speculation::Verdict late;
  late.base_length = 3;
  late.token_ids = {'x'};
  wire::TargetEvents events;
  events.verdicts.push_back({run_.id, late});
  events.common.closed.push_back(run_.id);
  dispatcher_.OnEvents(t0_.id, events);
  EXPECT_EQ(run_.sink->streamed_text(), "h");
  Verdict(t0_, run_.id, 3, {'i'}, FinishReason::kEos);
  EXPECT_THAT(run_.sink->completion()->token_ids, ElementsAre('h', 'i'));
  EXPECT_EQ(run_.sink->completion()->stats.stale_messages, 2);
}

TEST_F(ReturnTest, AFailureOfTheEarlierOpeningChangesNothing) {
  Fail(t0_, run_.id, 13, "the forward failed");
  EXPECT_EQ(TargetAddress(run_.id), "t0");
  EXPECT_EQ(run_.sink->num_ends(), 0);
  // It was as good as its close.
  Verdict(t0_, run_.id, 3, {'i'});
  EXPECT_EQ(run_.sink->streamed_text(), "hi");
  Fail(t0_, run_.id, 13, "the forward failed");
  EXPECT_EQ(run_.sink->error().code(), absl::StatusCode::kInternal);
}

// Room that a session without a target waits for is not for one that has one.
TEST_F(DrainTest, WhoHasNoTargetGoesBeforeWhoseTargetDrains) {
  const Worker lost = AddTarget("t0", 64);
  const Run held = Start(Sized("held", 64));
  const Worker draining = AddTarget("t1", 64);
  const Run stays = Start(Sized("stays", 16));
  const Worker full = AddTarget("t2", 64);
  const Run running = Start(Sized("running", 48));
  EXPECT_EQ(TargetAddress(running.id), "t2");
  dispatcher_.RemoveWorker(lost.id);
  dispatcher_.DrainWorker(draining.id);
  EXPECT_EQ(TargetAddress(stays.id), "t1");
  Verdict(full, running.id, 2, {'x'}, FinishReason::kLength);
  Closed(full, running.id);
  EXPECT_EQ(TargetAddress(held.id), "t2");
  EXPECT_EQ(TargetAddress(stays.id), "t1");
}

// A target that loses its sessions, but not its own place, plans for none.
TEST_F(DrainTest, AMovedSessionIsNoCompanyOnTheTargetThatItLeft) {
  const auto add = [this](const std::string& address) {
    WorkerInfo info = Info(WorkerRole::kTarget, address);
    info.step_times_ns = {{1, 5000000}, {8, 6000000}, {64, 60000000}};
    return AddWith(info);
  };
  // An async session beside one of a fixed window.
  const auto window = [this](const Worker& target, const std::string& id) {
    RequestSpec fixed = Request(id + " fixed");
    fixed.method = speculation::Method::kSd;
    fixed.window = 4;
    const Run beside = Start(fixed);
    const Run run = Start(id);
    const int window = target.client->last_target_plan.window;
    dispatcher_.Cancel(run.id);
    dispatcher_.Cancel(beside.id);
    return window;
  };
  const Worker first = add("t0");
  AddDraft();
  const int expected = window(first, "before");
  std::vector<Run> moved;
  for (int i = 0; i < 6; ++i) moved.push_back(Start(absl::StrCat("m", i)));
  const Worker second = add("t1");
  dispatcher_.DrainWorker(first.id);
  EXPECT_EQ(NumSessions(second), 6);
  dispatcher_.ResumeWorker(first.id);
  EXPECT_EQ(window(first, "after"), expected);
}

class PlanUnderWayTest : public DispatcherTest {
 protected:
  PlanUnderWayTest()
      : DispatcherTest([this](Dispatcher::Options* options) {
          options->wake_at = [this](int64_t) {
            if (on_wake_ != nullptr) std::exchange(on_wake_, nullptr)();
          };
        }) {}

  // When the dispatcher next asks to be woken: after its turn, and before it
  // searches for plans.
  std::function<void()> on_wake_;
};

TEST_F(PlanUnderWayTest, APlanForTheTargetThatASessionLeftIsDropped) {
  const Worker t0 = AddTarget("t0");
  AddDraft();
  WorkerInfo slow = Info(WorkerRole::kTarget, "t1");
  slow.step_times_ns = {{1, 500'000'000}};
  const Worker t1 = AddWith(slow);
  on_wake_ = [&] { dispatcher_.DrainWorker(t0.id); };
  RequestSpec request = Request("r");
  request.deadline_ns = 1'000'000'000;
  const Run run = Start(request);
  EXPECT_EQ(TargetAddress(run.id), "t1");
  EXPECT_EQ(t0.client->num_plans(), 0);
  EXPECT_EQ(t1.client->num_plans(), 1);
}

// One that is made anew after a verdict.
TEST_F(PlanUnderWayTest, ANewPlanForTheTargetThatASessionLeftIsDropped) {
  const Worker t0 = AddTarget("t0");
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.method = speculation::Method::kPearl;
  const Run run = Start(request);
  WorkerInfo fast = Info(WorkerRole::kTarget, "t1");
  fast.step_times_ns = {{1, 5'000'000}};
  const Worker t1 = AddWith(fast);
  // A draft token costs a twentieth of a step of t0, and half of one of t1.
  const auto spans = [&](SpanRecord::Kind kind, int64_t duration_ns) {
    wire::SessionEvents events;
    for (int i = 1; i <= 50; ++i) {
      SpanRecord span;
      span.session_id = run.id;
      span.kind = kind;
      span.start_ns = 10'000'000 * i;
      span.duration_ns = duration_ns;
      span.rows = span.batch_rows = 1;
      events.spans.push_back(span);
    }
    return events;
  };
  Say(draft, spans(SpanRecord::Kind::kDraft, 2'500'000));
  Say(t0, spans(SpanRecord::Kind::kVerify, 50'000'000));
  const int plans = t0.client->num_plans();
  draft.client->on_next_flush = [&] { dispatcher_.DrainWorker(t0.id); };
  Verdict(t0, run.id, 2, {'x'});
  EXPECT_EQ(TargetAddress(run.id), "t1");
  EXPECT_EQ(t0.client->num_plans(), plans);
}

TEST_F(DrainTest, WithoutAnEqualOneADrainingTargetFinishesAndGetsNoMore) {
  const Worker first = AddKind("t0", "a");
  const Run run = Start();
  const Run moved = Start("moved");
  dispatcher_.DrainWorker(first.id);
  const Run next = Start("next");
  EXPECT_EQ(TargetAddress(next.id), "no such session");
  const Worker unequal = AddKind("t1", "b");
  EXPECT_EQ(TargetAddress(next.id), "t1");
  EXPECT_EQ(NumSessions(unequal), 1);
  Verdict(first, run.id, 2, {'x'}, FinishReason::kLength);
  EXPECT_TRUE(run.sink->completion().has_value());
  // One that attaches later takes what is left.
  AddKind("t2", "a");
  EXPECT_EQ(TargetAddress(moved.id), "t2");
  EXPECT_EQ(NumSessions(first), 0);
}

TEST_F(DrainTest, ADrainingDraftsSessionsPairWithAnother) {
  const Worker target = AddTarget();
  const Worker first = AddDraft("d0");
  const Run run = Start();
  Verdict(target, run.id, 2, {'x'});
  dispatcher_.DrainWorker(first.id);
  EXPECT_EQ(DraftAddress(run.id), "d0");  // better than none
  EXPECT_EQ(DraftAddress(Start("next").id), "");
  first.client->Take();
  target.client->Take();
  const Worker second = AddDraft("d1");
  EXPECT_THAT(first.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  EXPECT_EQ(DraftAddress(run.id), "d1");
  EXPECT_EQ(NumSessions(first), 0);
  EXPECT_EQ(NumSessions(second), 2);
  const std::vector<std::string> calls = target.client->Take();
  EXPECT_THAT(calls, ::testing::Contains(absl::StrCat("lost ", run.id)));
  EXPECT_THAT(calls, ::testing::Contains(
                         absl::StrCat("attach ", run.id, " epoch 2 length 3")));
}

TEST_F(DrainTest, AWorkerThatOnlySeemedToHangTakesSessionsAgain) {
  const Worker target = AddTarget("t0");
  const Worker draft = AddDraft();
  dispatcher_.DrainWorker(target.id);
  dispatcher_.DrainWorker(draft.id);
  EXPECT_FALSE(dispatcher_.model().has_value());
  dispatcher_.ResumeWorker(target.id);
  const Run run = Start();
  EXPECT_EQ(TargetAddress(run.id), "t0");
  EXPECT_EQ(DraftAddress(run.id), "");
  dispatcher_.ResumeWorker(draft.id);
  dispatcher_.ResumeWorker(draft.id);
  EXPECT_EQ(DraftAddress(run.id), "draft");
}

}  // namespace
}  // namespace nacre::coordinator
