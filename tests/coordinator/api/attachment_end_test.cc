// Attachments that come to nothing, and how those in service end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/api/attachment.h"
#include "tests/coordinator/coordinator_fixture.h"

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;

class AttachmentEndTest : public CoordinatorFixture {
 protected:
  // Returns when the coordinator has dealt with a heartbeat.
  static void SayAndAwait(FakeWorker& worker, const v1::Heartbeat& heartbeat,
                          int count) {
    worker.Heartbeat(heartbeat);
    // A ping follows, and one came before it was accepted.
    ASSERT_TRUE(worker.target.controls.Await(
        [](const v1::TargetControl& control) { return control.has_ping(); },
        count + 1));
  }
  // The first may come late for the registry: only the second judges.
  void TickTwice() {
    registry_.Tick();
    registry_.Tick();
  }
};

// A balancer in front of several workers, a port that has another owner by now,
// or one that says another's Hello: another answers than attached.
TEST_F(AttachmentEndTest, AnAddressWhereAnotherWorkerAnswersIsRefused) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  FakeWorker other(v1::WORKER_ROLE_TARGET);
  other.hello.set_address(worker.address());
  FakeWorker rogue(v1::WORKER_ROLE_TARGET);
  rogue.hello = worker.hello;
  for (FakeWorker* wrong : {&other, &rogue}) {
    wrong->Attach(address());
    const absl::Status status = wrong->AwaitDetached();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("WRONG_WORKER"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(worker.address()));
    EXPECT_FALSE(wrong->commands.values().back().has_accepted());
  }
  // Its own attachment has noticed nothing.
  EXPECT_EQ(registry_.ListWorkers().size(), 1u);
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  EXPECT_TRUE(worker.detached.values().empty());
  EXPECT_EQ(registry_.num_lost(WorkerRole::kTarget), 0);
}

TEST_F(AttachmentEndTest, WhatIsNotInServiceInTimeIsSentAway) {
  constexpr int64_t kSecond = 1'000'000'000;
  FakeWorker unproven(v1::WORKER_ROLE_DRAFT);
  unproven.proves = false;
  unproven.Attach(address());
  ASSERT_TRUE(unproven.commands.Await([](const v1::WorkerCommand& command) {
    return command.has_vocabulary_request();
  }));
  FakeWorker deaf(v1::WORKER_ROLE_TARGET);
  deaf.target.answers_pings = false;
  deaf.Attach(address());
  ASSERT_TRUE(deaf.target.controls.Await(
      [](const v1::TargetControl& control) { return control.has_ping(); }));
  FakeWorker good(v1::WORKER_ROLE_DRAFT);
  good.Attach(address());
  ASSERT_TRUE(good.AwaitAccepted());
  silence_ns_ = 4 * kSecond;
  TickTwice();
  EXPECT_TRUE(unproven.detached.values().empty());
  EXPECT_TRUE(deaf.detached.values().empty());
  // Not in service yet, they need not have been heard of for --worker-timeout.
  silence_ns_ = 8 * kSecond;
  TickTwice();
  EXPECT_EQ(registry_.ListWorkers().size(), 2u);
  silence_ns_ = 15 * kSecond;
  TickTwice();
  const absl::Status unproven_status = unproven.AwaitDetached();
  EXPECT_EQ(unproven_status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unproven_status.message()),
              HasSubstr("longer than 15s"));
  EXPECT_THAT(std::string(unproven_status.message()),
              HasSubstr("did not prove its vocabulary"));
  const absl::Status deaf_status = deaf.AwaitDetached();
  EXPECT_EQ(deaf_status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(deaf_status.message()), HasSubstr(deaf.address()));
  EXPECT_THAT(std::string(deaf_status.message()),
              HasSubstr("answered no ping"));
  EXPECT_TRUE(deaf.target.ended.Await([](bool) { return true; }));

  FakeWorker mute(v1::WORKER_ROLE_TARGET);
  mute.Dial(address());
  // When the coordinator has noticed it shows in nothing.
  ASSERT_TRUE(Eventually([&] {
    silence_ns_ += 15 * kSecond;
    TickTwice();
    return !mute.detached.values().empty();
  }));
  EXPECT_EQ(mute.AwaitDetached().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(mute.AwaitDetached().message()),
              HasSubstr("it sent no Hello"));
  EXPECT_EQ(registry_.num_lost(WorkerRole::kTarget), 0);
}

TEST_F(AttachmentEndTest, WorkersThatGoWithoutAWordCountAsLost) {
  const auto attach = [this](FakeWorker& worker, int times = 1) {
    worker.Attach(address());
    ASSERT_TRUE(worker.AwaitAccepted(times));
  };
  const auto leave = [this](FakeWorker& worker) {
    worker.Detach();
    ASSERT_TRUE(Eventually([&] { return dispatcher_.workers().empty(); }));
  };
  constexpr auto kTarget = WorkerRole::kTarget;
  FakeWorker crashed(v1::WORKER_ROLE_TARGET);
  attach(crashed);
  leave(crashed);
  EXPECT_TRUE(Eventually([&] { return registry_.num_lost(kTarget) == 1; }));
  // It is back before it is missed: it was lost all the same.
  attach(crashed, 2);
  attach(crashed, 3);
  EXPECT_TRUE(Eventually([&] { return registry_.num_lost(kTarget) == 2; }));
  EXPECT_EQ(dispatcher_.workers().size(), 1u);
  leave(crashed);
  EXPECT_TRUE(Eventually([&] { return registry_.num_lost(kTarget) == 3; }));

  // What they have said is known by then.
  FakeWorker draining(v1::WORKER_ROLE_TARGET);
  attach(draining);
  v1::Heartbeat heartbeat;
  heartbeat.set_draining(true);
  SayAndAwait(draining, heartbeat, 1);
  leave(draining);
  FakeWorker told(v1::WORKER_ROLE_TARGET);
  attach(told);
  EXPECT_TRUE(registry_.Drain(told.address()).ok());
  leave(told);
  FakeWorker draft(v1::WORKER_ROLE_DRAFT);
  attach(draft);
  leave(draft);
  EXPECT_TRUE(
      Eventually([&] { return registry_.num_lost(WorkerRole::kDraft) == 1; }));
  FakeWorker last(v1::WORKER_ROLE_TARGET);
  attach(last);
  registry_.Shutdown();
  ASSERT_TRUE(Eventually([&] { return dispatcher_.workers().empty(); }));
  ASSERT_FALSE(last.AwaitDetached().ok());
  EXPECT_EQ(registry_.num_lost(kTarget), 3);
  EXPECT_EQ(registry_.num_lost(WorkerRole::kDraft), 1);
}

TEST_F(AttachmentEndTest, AWorkerIsToldToDrainOnce) {
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  v1::Heartbeat heartbeat;
  heartbeat.set_hung(true);
  SayAndAwait(worker, heartbeat, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(registry_.Drain(worker.address()).ok());
  }
  // Nor does it come back when it has only seemed to hang.
  heartbeat.set_hung(false);
  SayAndAwait(worker, heartbeat, 2);
  EXPECT_FALSE(dispatcher_.model().has_value());
  // Nothing follows the end of its stream.
  registry_.Shutdown();
  EXPECT_FALSE(worker.AwaitDetached().ok());
  int num_drains = 0;
  for (const v1::WorkerCommand& command : worker.commands.values()) {
    num_drains += command.has_drain() ? 1 : 0;
  }
  EXPECT_EQ(num_drains, 1);
}

}  // namespace
}  // namespace nacre::coordinator
