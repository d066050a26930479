// Requests that wait for a target that is not there, or not ready.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/refusal.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_queue_fixture.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(DispatcherQueueTest, NewRequestsWaitForATargetThatIsBackInTime) {
  const Worker target = AddTarget("t0", 64);
  dispatcher_.RemoveWorker(target.id);
  EXPECT_FALSE(dispatcher_.model().has_value());
  EXPECT_EQ(dispatcher_.expected_model()->address, "t0");
  // Whether a target will have room for it is not known yet.
  const Run large = Start(Sized("large", 100));
  const Run small = Start(Sized("small", 64));
  EXPECT_THAT(Queue(), ElementsAre("large", "small"));
  AddTarget("t1", 64);
  EXPECT_TRUE(IsRunning(small.id));
  // t0 may come back, but was no larger.
  EXPECT_EQ(large.sink->error().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DispatcherQueueTest, NewRequestsWaitForATargetThatSeemsToHang) {
  const Worker target = AddTarget("t0", 64);
  dispatcher_.DrainWorker(target.id);
  const Run run = Start(Sized("r", 64));
  EXPECT_FALSE(IsRunning(run.id));
  dispatcher_.ResumeWorker(target.id);
  EXPECT_TRUE(IsRunning(run.id));
}

// A stop of some seconds costs no request its place in the queue.
TEST_F(DispatcherQueueTest, WhoNeedsTheLargestTargetWaitsWhileItHangs) {
  const Worker large = AddTarget("large", 128);
  AddTarget("small", 64);
  const Run first = Start(Sized("first", 128));
  const Run second = Start(Sized("second", 100));
  dispatcher_.DrainWorker(large.id);
  const Run third = Start(Sized("third", 100));
  EXPECT_THAT(Queue(), ElementsAre("second", "third"));
  dispatcher_.ResumeWorker(large.id);
  EndOn(large, first);
  EXPECT_TRUE(IsRunning(second.id));
  // The same while it restarts.
  dispatcher_.RemoveWorker(large.id);
  const Run fourth = Start(Sized("fourth", 100));
  EXPECT_EQ(third.sink->num_ends() + fourth.sink->num_ends(), 0);
  dispatcher_.Cancel(second.id);
  const Worker back = AddTarget("large", 128);
  EXPECT_TRUE(IsRunning(third.id));
  EXPECT_EQ(NumSessions(back), 1);
}

TEST_F(DispatcherQueueTest, WhatNoTargetThatIsLeftCouldHoldIsRefusedInTheEnd) {
  const Worker large = AddTarget("large", 128);
  AddTarget("small", 64);
  Start(Sized("first", 128));
  const Run second = Start(Sized("second", 100));
  dispatcher_.RemoveWorker(large.id);
  now_ns_ += 10 * kSecond - 1;
  dispatcher_.Tick();
  EXPECT_EQ(second.sink->num_ends(), 0);
  now_ns_ += 1;
  dispatcher_.Tick();
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.sink->error().message()),
              HasSubstr("after 10s in the queue: a prompt of 2 tokens"));
  EXPECT_TRUE(IsRefusedFor(second.sink->error(), kNeverFits));
  EXPECT_EQ(Refusal(Sized("third", 100)).code(),
            absl::StatusCode::kResourceExhausted);
}

// Where a target that could hold it may come back, no reason says that it never
// fits.
TEST_F(DispatcherQueueTest, WhatMayFitAgainIsRefusedForTheQueueAlone) {
  const Worker large = AddTarget("large", 128);
  AddTarget("small", 64);
  dispatcher_.DrainWorker(large.id);
  const Run first = Start(Sized("first", 100));
  Start(Sized("second", 100));
  EXPECT_THAT(Queue(), ElementsAre("first", "second"));
  EXPECT_TRUE(IsRefusedFor(Refusal(Sized("third", 100)), kQueueFull));
  now_ns_ += 10 * kSecond;
  dispatcher_.Tick();
  EXPECT_TRUE(IsRefusedFor(first.sink->error(), kQueueTimeout))
      << first.sink->error();
  EXPECT_THAT(std::string(first.sink->error().message()),
              HasSubstr("after 10s in the queue: a prompt of 2 tokens"));
  EXPECT_TRUE(IsRefusedFor(Refusal(Sized("third", 129)), kNeverFits));
}

TEST_F(DispatcherQueueTest, WhatHasBecomeHopelessIsRefusedAtADrain) {
  const Worker large = AddTarget("large", 128);
  AddTarget("small", 64);
  const Worker draft = AddDraft();
  dispatcher_.RemoveWorker(large.id);
  now_ns_ += 5 * kSecond;
  const Run run = Start(Sized("r", 100));
  now_ns_ += 5 * kSecond - 1;
  dispatcher_.DrainWorker(draft.id);
  EXPECT_THAT(Queue(), ElementsAre("r"));
  dispatcher_.ResumeWorker(draft.id);
  now_ns_ += 1;
  dispatcher_.DrainWorker(draft.id);
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DispatcherQueueTest, WhatJustFitsATargetThatLeftWaitsForIt) {
  const Worker large = AddTarget("large", 128);
  AddTarget("small", 64);
  dispatcher_.RemoveWorker(large.id);
  Start(Sized("exact", 128));
  EXPECT_THAT(Queue(), ElementsAre("exact"));
  EXPECT_EQ(Refusal(Sized("more", 129)).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(DispatcherQueueTest, ASmallTargetThatLeavesTooHidesNoLargeOne) {
  const Worker large = AddTarget("large", 128);
  const Worker small = AddTarget("small", 64);
  AddTarget("stays", 64);
  dispatcher_.RemoveWorker(large.id);
  dispatcher_.RemoveWorker(small.id);
  Start(Sized("exact", 128));
  EXPECT_THAT(Queue(), ElementsAre("exact"));
}

TEST_F(DispatcherQueueTest, WhatTargetsOfAnotherModelHeldIsForgotten) {
  dispatcher_.RemoveWorker(AddTarget("large", 128).id);
  WorkerInfo info = Info(WorkerRole::kTarget, "other");
  info.fingerprint = "another";
  info.kv_capacity_tokens = 64;
  AddWith(info);
  EXPECT_EQ(Refusal(Sized("r", 100)).code(),
            absl::StatusCode::kResourceExhausted);
}

class WithoutHoldTest : public DispatcherTest {
 protected:
  WithoutHoldTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->hold_without_target = false;
        }) {}
};

TEST_F(WithoutHoldTest, WithoutATargetNewRequestsAreRefusedAtOnce) {
  const auto sink = std::make_shared<RecordingSink>();
  const Worker target = AddTarget("t0", 64);
  RequestSpec request = Request("r");
  request.max_tokens = 40;
  const Run running = Start(request);
  request.request_id = "waits";
  const Run waits = Start(request);
  request.request_id = "new";
  dispatcher_.DrainWorker(target.id);
  EXPECT_EQ(dispatcher_.Start(request, sink).status(),
            absl::UnavailableError("no target worker is ready"));
  dispatcher_.RemoveWorker(target.id);
  EXPECT_EQ(dispatcher_.Start(request, sink).status(),
            absl::UnavailableError("no target worker is ready"));
  EXPECT_FALSE(dispatcher_.expected_model().has_value());
  EXPECT_EQ(waits.sink->num_ends(), 0);
}

class EndlessWaitTest : public DispatcherTest {
 protected:
  EndlessWaitTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->queue_timeout_ns = kNever;
          options->failover_timeout_ns = kNever;
          options->max_request_ns = kNever - 1;
        }) {}
};

TEST_F(EndlessWaitTest, NobodyRunsOutOfTime) {
  const Worker target = AddTarget("t0", 64);
  RequestSpec request = Request("first");
  request.max_tokens = 60;
  const Run first = Start(request);
  request.request_id = "second";
  const Run second = Start(request);
  dispatcher_.RemoveWorker(target.id);
  now_ns_ += 1'000'000 * kSecond;
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  EXPECT_EQ(first.sink->num_ends() + second.sink->num_ends(), 0);
  AddTarget("t1", 128);
  EXPECT_EQ(dispatcher_.sessions().size(), 2u);
  EXPECT_THAT(wakes_, IsEmpty());
}

}  // namespace
}  // namespace nacre::coordinator
