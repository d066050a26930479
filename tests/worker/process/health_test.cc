// Health through a real gRPC server, over a real engine whose model hangs.

#include "worker/process/health.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "target_worker/target_engine.h"
#include "tests/testing/health_check.h"
#include "tests/testing/table_model.h"
#include "worker/engine/engine_thread.h"

namespace nacre::worker {
namespace {

using nacre::testing::CheckHealth;
using nacre::testing::kNotServing;
using nacre::testing::kServing;

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    nacre::testing::TableModelOptions model_options;
    model_options.on_forward = [this](int) {
      if (hang_) release_.WaitForNotification();
      return absl::OkStatus();
    };
    model_options.on_row = [this](absl::Span<const int32_t>,
                                  std::vector<float>* row) {
      if (!computes_wrongly_) return;
      row->assign(row->size(), std::numeric_limits<float>::quiet_NaN());
    };
    model_ = std::make_unique<nacre::testing::TableModel>(model_options);
    target_worker::TargetEngine::Options engine_options;
    engine_options.model = model_.get();
    engine_options.send = [](StreamId, const target_worker::TargetEvents&) {};
    engine_ = std::make_unique<target_worker::TargetEngine>(engine_options);
    server_ = *rpc::RpcServer::Start({"127.0.0.1:0", ""}, {});
    EngineThread::Options thread_options;
    thread_options.model = model_.get();
    thread_options.engine = engine_.get();
    engine_thread_ = std::make_unique<EngineThread>(thread_options);
    EXPECT_TRUE(engine_thread_->WaitForWarmUp().ok());
  }

  // No hang is seen by mistake, however busy the machine is.
  void StartHealth(absl::Duration hang_timeout = absl::Hours(1)) {
    Health::Options options;
    options.engine = engine_.get();
    options.set_serving = [this](const std::string& service, bool serving) {
      server_->SetServing(service, serving);
    };
    options.hang_timeout = hang_timeout;
    options.period = absl::Milliseconds(5);
    health_ = std::make_unique<Health>(std::move(options));
  }

  uint32_t Check(const std::string& service) {
    return CheckHealth(server_->address(), service).value_or(0);
  }
  // Polls: health is a state, nothing announces it.
  void Await(const std::string& service, uint32_t state) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (Check(service) != state) {
      ASSERT_LT(absl::Now(), deadline) << service;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  std::atomic<bool> hang_{false};
  std::atomic<bool> computes_wrongly_{false};
  absl::Notification release_;
  std::unique_ptr<nacre::testing::TableModel> model_;
  std::unique_ptr<target_worker::TargetEngine> engine_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<EngineThread> engine_thread_;
  std::unique_ptr<Health> health_;
};

TEST_F(HealthTest, NothingServesBeforeThereIsHealth) {
  for (const char* service : {"", "startup", "liveness", "readiness"}) {
    EXPECT_EQ(Check(service), kNotServing) << service;
  }
  StartHealth();
  for (const char* service : {"", "startup", "liveness", "readiness"}) {
    EXPECT_EQ(Check(service), kServing) << service;
  }
}

TEST_F(HealthTest, AHungForwardTurnsLivenessRedUntilItGoesOn) {
  StartHealth(/*hang_timeout=*/absl::Milliseconds(500));
  hang_ = true;
  target_worker::OpenTarget open;
  open.session_id = 1;
  open.token_ids = {1, 2, 3};
  open.prompt_length = 3;
  open.max_tokens = 5;
  target_worker::TargetCommands commands;
  commands.stream = 1;
  commands.open.push_back(open);
  engine_->Push(std::move(commands));
  for (const char* service : {"liveness", "readiness", ""}) {
    Await(service, kNotServing);
  }
  EXPECT_TRUE(health_->hung());
  EXPECT_TRUE(health_->unfit());
  EXPECT_FALSE(health_->state().live);
  EXPECT_EQ(health_->state().note, "the engine hangs");
  EXPECT_EQ(Check("startup"), kServing);

  release_.Notify();
  for (const char* service : {"liveness", "readiness", ""}) {
    Await(service, kServing);
  }
  EXPECT_FALSE(health_->hung());
}

TEST_F(HealthTest, AnEngineThatComputesNoNumbersIsNotLive) {
  StartHealth();
  computes_wrongly_ = true;
  EXPECT_FALSE(health_->unfit());
  for (uint64_t id = 1; id <= 3; ++id) {
    target_worker::OpenTarget open;
    open.session_id = id;
    open.token_ids = {1, 2, 3};
    open.prompt_length = 3;
    open.max_tokens = 5;
    target_worker::TargetCommands commands;
    commands.stream = 1;
    commands.open.push_back(open);
    engine_->Push(std::move(commands));
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (engine_->stats().nonfinite_logits < id) {
      ASSERT_LT(absl::Now(), deadline);
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  for (const char* service : {"liveness", "readiness", ""}) {
    Await(service, kNotServing);
  }
  EXPECT_EQ(Check("startup"), kServing);
  EXPECT_TRUE(health_->unfit());
  EXPECT_FALSE(health_->hung());  // it still takes commands
  EXPECT_FALSE(health_->state().live);
  EXPECT_EQ(health_->state().note, "the device computes no numbers");
}

TEST_F(HealthTest, ADrainingWorkerIsLiveButNotReady) {
  StartHealth();
  health_->Drain();
  EXPECT_EQ(Check("liveness"), kServing);
  EXPECT_EQ(Check("startup"), kServing);
  EXPECT_EQ(Check("readiness"), kNotServing);
  EXPECT_EQ(Check(""), kNotServing);
  EXPECT_TRUE(health_->state().live);
  EXPECT_FALSE(health_->state().ready);
  EXPECT_EQ(health_->state().note, "draining");
}

TEST_F(HealthTest, AnEngineThatHangsWhileDrainingStaysUnready) {
  StartHealth(/*hang_timeout=*/absl::Milliseconds(100));
  health_->Drain();
  engine_thread_ = nullptr;  // what is pushed from here on stays
  engine_->Push({});
  Await("liveness", kNotServing);
  EXPECT_EQ(Check("readiness"), kNotServing);
  EXPECT_TRUE(health_->hung());
}

TEST_F(HealthTest, AWorkerThatIsWellHasNothingToSay) {
  StartHealth();
  EXPECT_TRUE(health_->state().live);
  EXPECT_TRUE(health_->state().ready);
  EXPECT_EQ(health_->state().note, "");
  EXPECT_FALSE(health_->hung());
  EXPECT_FALSE(health_->unfit());
  health_->Drain();
  EXPECT_FALSE(health_->unfit());
}

}  // namespace
}  // namespace nacre::worker
