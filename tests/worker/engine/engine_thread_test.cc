#include "worker/engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>

#include "absl/synchronization/notification.h"
#include "common/logging.h"
#include "target_worker/target_engine.h"
#include "tests/testing/table_model.h"

namespace nacre::worker {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

std::unique_ptr<target_worker::TargetEngine> MakeEngine(TableModel* model) {
  target_worker::TargetEngine::Options options;
  options.model = model;
  options.send = [](StreamId, const target_worker::TargetEvents&) {};
  return std::make_unique<target_worker::TargetEngine>(options);
}

EngineThread::Options MakeOptions(TableModel* model, Engine* engine) {
  EngineThread::Options options;
  options.model = model;
  options.engine = engine;
  options.on_failure = [](const absl::Status& status) {
    ADD_FAILURE() << status;
  };
  return options;
}

void PushOneSession(target_worker::TargetEngine& engine) {
  target_worker::OpenTarget open;
  open.session_id = 1;
  open.token_ids = {1};
  open.prompt_length = 1;
  open.max_tokens = 5;
  target_worker::TargetCommands commands;
  commands.stream = 1;
  commands.open.push_back(open);
  engine.Push(std::move(commands));
}

TEST(EngineThreadTest, WarmsUpBoundToItsCoreAndStops) {
  TableModel model({});
  const auto engine = MakeEngine(&model);
  {
    EngineThread thread(MakeOptions(&model, engine.get()));
    const auto times = thread.WaitForWarmUp();
    ASSERT_TRUE(times.ok());
    EXPECT_FALSE(times->empty());
    EXPECT_TRUE(model.compute_thread_bound());
  }
  EXPECT_EQ(model.num_sequences(), 0);
}

TEST(EngineThreadTest, AWarmUpThatFailsIsTheWarmUpsError) {
  TableModelOptions options;
  options.on_forward = [](int) { return absl::InternalError("no device"); };
  TableModel model(options);
  const auto engine = MakeEngine(&model);
  EngineThread thread(MakeOptions(&model, engine.get()));
  EXPECT_EQ(thread.WaitForWarmUp().status().message(), "no device");
}

TEST(EngineThreadTest, TheEngineIsPreparedWithTheWarmUp) {
  TableModelOptions options;
  options.on_row = [](absl::Span<const int32_t> tokens,
                      std::vector<float>* row) {
    // Of the warm-up's tokens each is 0.
    if (tokens.size() > 1 && tokens[1] != 0) row->assign(row->size(), NAN);
  };
  TableModel model(options);
  const auto engine = MakeEngine(&model);
  EngineThread thread(MakeOptions(&model, engine.get()));
  EXPECT_EQ(thread.WaitForWarmUp().status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(EngineThreadTest, ADeviceErrorIsAFailure) {
  std::atomic<bool> broken{false};
  TableModelOptions model_options;
  model_options.on_forward = [&broken](int) {
    return broken ? absl::InternalError("the device is gone")
                  : absl::OkStatus();
  };
  TableModel model(model_options);
  const auto engine = MakeEngine(&model);
  absl::Notification failed;
  EngineThread::Options options = MakeOptions(&model, engine.get());
  options.on_failure = [&failed](const absl::Status& status) {
    EXPECT_EQ(status.message(), "the device is gone");
    failed.Notify();
  };
  EngineThread thread(options);
  ASSERT_TRUE(thread.WaitForWarmUp().ok());
  broken = true;
  PushOneSession(*engine);
  failed.WaitForNotification();
}

TEST(EngineThreadTest, AStopEndsWhatAStepOnlyWaitsFor) {
  std::atomic<bool> waits{false};
  absl::Notification waiting, stopped;
  TableModelOptions model_options;
  model_options.on_forward = [&](int) {
    if (waits.exchange(false)) {
      waiting.Notify();
      stopped.WaitForNotification();
    }
    return absl::OkStatus();
  };
  TableModel model(model_options);
  const auto engine = MakeEngine(&model);
  EngineThread::Options options = MakeOptions(&model, engine.get());
  options.stop_waits = [&stopped] { stopped.Notify(); };
  EngineThread thread(options);
  ASSERT_TRUE(thread.WaitForWarmUp().ok());
  waits = true;
  PushOneSession(*engine);
  waiting.WaitForNotification();
  // It hangs here for ever if nothing ends the wait.
}

TEST(EngineThreadDeathTest, AHungEngineDoesNotKeepTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const Logging logging("worker", {});
        absl::Notification never;
        std::atomic<bool> hang{false};
        absl::Notification hanging;
        TableModelOptions model_options;
        model_options.on_forward = [&](int) {
          if (hang) {
            hanging.Notify();
            never.WaitForNotification();
          }
          return absl::OkStatus();
        };
        TableModel model(model_options);
        const auto engine = MakeEngine(&model);
        EngineThread::Options options = MakeOptions(&model, engine.get());
        options.stop_timeout = absl::Milliseconds(20);
        EngineThread thread(options);
        (void)thread.WaitForWarmUp();
        hang = true;
        PushOneSession(*engine);
        hanging.WaitForNotification();
      },
      ::testing::ExitedWithCode(1), "the engine hangs and does not stop");
}

}  // namespace
}  // namespace nacre::worker
