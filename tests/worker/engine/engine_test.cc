#include "worker/engine/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "worker/engine/engine_inbox.h"

namespace nacre::worker {
namespace {

// Steps once for each number pushed; a negative one breaks the device.
class CountingEngine : public Engine {
 public:
  CountingEngine() : Engine(MonotonicNowNs) {}

  absl::StatusOr<StepOutcome> RunOnce() override {
    inbox.Take(&items_);
    for (const int item : items_) {
      if (item < 0) return absl::InternalError("broken");
      sum += item;
      monitor_.Enter(WorkerState::kVerify, now_ns_());
    }
    EngineStats stats;
    stats.steps = static_cast<uint64_t>(sum);
    monitor_.Publish(stats);
    StepOutcome outcome;
    outcome.stepped = !items_.empty();
    return outcome;
  }

  EngineInbox<int> inbox;
  int sum = 0;
  int deliveries = 0;

 protected:
  void Wake() override { inbox.Wake(); }
  void Deliver(Delivery) override { ++deliveries; }
  void WaitForCommands(const StepOutcome& idle) override {
    inbox.Wait(idle.deadline_ns);
  }
  bool HasCommands() const override { return inbox.HasItems(); }

 private:
  std::vector<int> items_;
};

TEST(EngineTest, RunsUntilStopped) {
  CountingEngine engine;
  std::thread thread([&engine] { EXPECT_TRUE(engine.Run().ok()); });
  engine.inbox.Push(3);
  engine.inbox.Push(4);
  while (engine.stats().steps != 7) std::this_thread::yield();
  engine.Stop();
  thread.join();
  EXPECT_EQ(engine.sum, 7);
}

TEST(EngineTest, RunEndsWithADelivery) {
  CountingEngine engine;
  engine.Stop();
  EXPECT_TRUE(engine.Run().ok());
  EXPECT_EQ(engine.deliveries, 1);
  CountingEngine broken;
  broken.inbox.Push(-1);
  EXPECT_FALSE(broken.Run().ok());
  EXPECT_EQ(broken.deliveries, 1);
}

TEST(EngineTest, StopBeforeRunIsNotLost) {
  CountingEngine engine;
  engine.Stop();
  EXPECT_TRUE(engine.Run().ok());
}

TEST(EngineTest, RunReturnsTheDevicesError) {
  CountingEngine engine;
  engine.inbox.Push(-1);
  EXPECT_EQ(engine.Run().code(), absl::StatusCode::kInternal);
}

TEST(EngineTest, ProgressTellsWorkFromWaiting) {
  CountingEngine engine;
  EXPECT_FALSE(engine.progress().working);
  engine.inbox.Push(3);
  EXPECT_TRUE(engine.progress().working);  // not taken yet
  const uint64_t before = engine.progress().finished;
  std::thread thread([&engine] { EXPECT_TRUE(engine.Run().ok()); });
  while (engine.progress().working) std::this_thread::yield();
  EXPECT_GT(engine.progress().finished, before);
  engine.Stop();
  thread.join();
  EXPECT_EQ(engine.sum, 3);
}

TEST(EngineTest, StatsHoldTheRunningState) {
  CountingEngine engine;
  engine.inbox.Push(1);
  ASSERT_TRUE(engine.RunOnce().ok());
  const EngineStats first = engine.stats();
  const EngineStats second = engine.stats();
  EXPECT_EQ(first.steps, 1u);
  EXPECT_GE(second.time[WorkerState::kVerify],
            first.time[WorkerState::kVerify]);
  EXPECT_EQ(
      second.time[WorkerState::kVerify] + second.time[WorkerState::kNoWork],
      second.time.elapsed_ns);
}

}  // namespace
}  // namespace nacre::worker
