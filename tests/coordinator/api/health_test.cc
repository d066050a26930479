// Health through a real gRPC server and over HTTP, of a real dispatcher that is
// made to hang.

#include "coordinator/api/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "coordinator/dispatch/dispatcher.h"
#include "telemetry/metrics_server.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/recording_client.h"
#include "tests/coordinator/recording_sink.h"
#include "tests/telemetry/http_get.h"
#include "tests/testing/health_check.h"

namespace nacre::coordinator {
namespace {

using nacre::testing::CheckHealth;
using nacre::testing::kNotServing;
using nacre::testing::kServing;
using ::testing::EndsWith;
using ::testing::StartsWith;

// Stands still where every request and every tick passes, as a bug would.
class HangingObserver final : public Observer {
 public:
  void OnStarted(uint64_t, const RequestSpec&, const Placement&,
                 int64_t) override {
    if (hang) release.WaitForNotification();
  }
  std::atomic<bool> hang{false};
  absl::Notification release;
};

class HealthTest : public ::testing::Test {
 protected:
  ~HealthTest() override {
    if (!observer_.release.HasBeenNotified()) observer_.release.Notify();
    ticks_.Stop();
  }

  // No hang is seen by mistake, however busy the machine is.
  void StartHealth(absl::Duration hang_timeout = absl::Hours(1),
                   int64_t hold_ns = 0) {
    Health::Options options;
    options.ticks = &ticks_;
    options.set_serving = [this](const std::string& service, bool serving) {
      server_->SetServing(service, serving);
    };
    options.hang_timeout = hang_timeout;
    options.period = absl::Milliseconds(5);
    options.hold_ns = hold_ns;
    options.now_ns = [this] { return now_ns_.load(); };
    health_ = std::make_unique<Health>(std::move(options));
    http_ = *telemetry::MetricsServer::Start(
        {"127.0.0.1:0", ""}, {}, [this] { return health_->state(); });
    ticks_.Start([this] {
      const int64_t next_ns = dispatcher_.Tick();
      health_->OnTick(dispatcher_.workers());
      ++num_ticks_;
      return next_ns;
    });
  }

  uint64_t Add(WorkerRole role) {
    WorkerInfo info;
    info.role = role;
    info.address = "worker";
    info.model_vocab_size = info.tokenizer_vocab_size = 300;
    info.context_length = 1024;
    return AddWorker(&dispatcher_, std::move(info),
                     std::make_shared<RecordingClient>())
        .value_or(0);
  }

  uint32_t Check(const std::string& service) {
    return CheckHealth(server_->address(), service).value_or(0);
  }
  std::string Get(const std::string& path) {
    return telemetry::HttpGet(http_->address(), path);
  }
  // Polls: health is a state, nothing announces it.
  void Await(const std::string& service, uint32_t state) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (Check(service) != state) {
      ASSERT_LT(absl::Now(), deadline) << service;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  void AwaitNote(const std::string& note) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (health_->state().note != note) {
      ASSERT_LT(absl::Now(), deadline) << health_->state().note;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // Until one has begun and ended that sees the clock as it is.
  void AwaitTick() {
    const int64_t seen = num_ticks_;
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (num_ticks_ < seen + 2) {
      ASSERT_LT(absl::Now(), deadline);
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  const ByteTokenizer tokenizer_;
  HangingObserver observer_;
  std::atomic<int64_t> num_ticks_{0};
  std::atomic<int64_t> now_ns_{1000 * kSecond};  // of the hold
  TickThread ticks_;
  Dispatcher dispatcher_{
      {.tokenizer = &tokenizer_,
       .observer = &observer_,
       .wake_at = [this](int64_t at_ns) { ticks_.WakeAt(at_ns); }}};
  std::unique_ptr<rpc::RpcServer> server_ =
      *rpc::RpcServer::Start({"127.0.0.1:0", ""}, {});
  std::unique_ptr<Health> health_;
  std::unique_ptr<telemetry::MetricsServer> http_;
};

TEST_F(HealthTest, WithoutATargetItIsLiveButNotReady) {
  for (const char* service : {"", "startup", "liveness", "readiness"}) {
    EXPECT_EQ(Check(service), kNotServing) << service;
  }
  StartHealth();
  EXPECT_EQ(Check("startup"), kServing);
  EXPECT_EQ(Check("liveness"), kServing);
  EXPECT_EQ(Check("readiness"), kNotServing);
  EXPECT_EQ(Check(""), kNotServing);
  Add(WorkerRole::kDraft);
  AwaitNote("no target takes sessions");
  EXPECT_THAT(Get("/startup"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get("/liveness"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string answer = Get("/readiness");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nnot ok: no target takes sessions\n"));
}

TEST_F(HealthTest, ReadinessFollowsTheTargetsAndNamesAMissingDraft) {
  StartHealth();
  const uint64_t target = Add(WorkerRole::kTarget);
  Await("readiness", kServing);
  EXPECT_EQ(Check(""), kServing);
  // There never was a draft: none is missing.
  AwaitTick();
  EXPECT_THAT(Get("/readiness"), EndsWith("\r\n\r\nok\n"));

  const uint64_t draft = Add(WorkerRole::kDraft);
  AwaitTick();
  AwaitNote("");
  EXPECT_THAT(Get("/readiness"), EndsWith("\r\n\r\nok\n"));
  dispatcher_.RemoveWorker(draft);
  AwaitNote("degraded, no draft takes sessions");
  EXPECT_EQ(Check("readiness"), kServing);
  EXPECT_THAT(Get("/readiness"),
              EndsWith("\r\n\r\nok: degraded, no draft takes sessions\n"));
  EXPECT_THAT(Get("/readiness"), StartsWith("HTTP/1.1 200 OK\r\n"));
  Add(WorkerRole::kDraft);
  AwaitNote("");
  EXPECT_THAT(Get("/readiness"), EndsWith("\r\n\r\nok\n"));

  dispatcher_.DrainWorker(target);
  Await("readiness", kNotServing);
  Await("", kNotServing);
  EXPECT_EQ(Check("liveness"), kServing);
  dispatcher_.ResumeWorker(target);
  Await("readiness", kServing);
  dispatcher_.RemoveWorker(target);
  Await("readiness", kNotServing);
}

TEST_F(HealthTest, ADraftThatTakesNoSessionsIsMissing) {
  Health::Options options;
  options.ticks = &ticks_;
  options.set_serving = [](const std::string&, bool) {};
  Health health(std::move(options));
  WorkerStatus target;
  target.info.role = WorkerRole::kTarget;
  target.ready = true;
  health.OnTick({target});
  EXPECT_EQ(health.state().note, "");
  WorkerStatus draft;
  draft.info.role = WorkerRole::kDraft;
  health.OnTick({target, draft});
  EXPECT_EQ(health.state().note, "degraded, no draft takes sessions");
  health.OnTick({target});
  EXPECT_EQ(health.state().note, "degraded, no draft takes sessions");
  draft.ready = true;
  health.OnTick({target, draft});
  EXPECT_EQ(health.state().note, "");
}

// Clients that are sent by readiness find the queue in which they may wait.
TEST_F(HealthTest, WhileRequestsWaitForATargetItIsReady) {
  StartHealth(/*hang_timeout=*/absl::Hours(1), /*hold_ns=*/60 * kSecond);
  AwaitNote("no target takes sessions");  // there has been none to wait for
  EXPECT_EQ(Check("readiness"), kNotServing);
  const uint64_t target = Add(WorkerRole::kTarget);
  Await("readiness", kServing);
  now_ns_ += 1000 * kSecond;  // counts from the end of the last target
  dispatcher_.DrainWorker(target);
  AwaitNote("waits for a target");
  EXPECT_EQ(Check("readiness"), kServing);
  EXPECT_EQ(Check(""), kServing);
  const std::string answer = Get("/readiness");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nok: waits for a target\n"));

  // Back for a moment, it is waited for anew.
  now_ns_ += 59 * kSecond;
  dispatcher_.ResumeWorker(target);
  AwaitNote("");
  dispatcher_.RemoveWorker(target);
  AwaitNote("waits for a target");
  now_ns_ += 60 * kSecond - 1;
  AwaitTick();
  EXPECT_EQ(Check("readiness"), kServing);
  now_ns_ += 1;
  AwaitNote("no target takes sessions");
  Await("readiness", kNotServing);
  Await("", kNotServing);
  AwaitTick();
  EXPECT_EQ(Check("readiness"), kNotServing);
  Add(WorkerRole::kTarget);
  Await("readiness", kServing);
}

TEST_F(HealthTest, WhereNobodyWaitsForATargetItIsUnreadyWithTheLastOne) {
  Health::Options options;
  options.ticks = &ticks_;
  options.set_serving = [](const std::string&, bool) {};
  options.now_ns = [this] { return now_ns_.load(); };
  options.hold_ns = 0;
  Health health(std::move(options));
  WorkerStatus target;
  target.info.role = WorkerRole::kTarget;
  target.ready = true;
  health.OnTick({target});
  EXPECT_TRUE(health.state().ready);
  health.OnTick({});
  EXPECT_FALSE(health.state().ready);
  EXPECT_EQ(health.state().note, "no target takes sessions");
}

TEST_F(HealthTest, ForATargetThatIsWaitedForForEverItStaysReady) {
  StartHealth(/*hang_timeout=*/absl::Hours(1), /*hold_ns=*/kNever);
  const uint64_t target = Add(WorkerRole::kTarget);
  Await("readiness", kServing);
  dispatcher_.RemoveWorker(target);
  AwaitNote("waits for a target");
  now_ns_ = kNever - 1;
  AwaitTick();
  EXPECT_EQ(Check("readiness"), kServing);
  health_->Drain();
  EXPECT_EQ(Check("readiness"), kNotServing);
}

TEST_F(HealthTest, ADispatcherThatHangsTurnsLivenessRedUntilItGoesOn) {
  StartHealth(/*hang_timeout=*/absl::Milliseconds(500));
  Add(WorkerRole::kTarget);
  Await("readiness", kServing);
  observer_.hang = true;
  // An event that the dispatcher never gets over, with its lock held.
  std::thread stuck([this] {
    RequestSpec request;
    request.request_id = "r";
    request.prompt_ids = {7, 8};
    request.max_tokens = 8;
    EXPECT_TRUE(
        dispatcher_.Start(std::move(request), std::make_shared<RecordingSink>())
            .ok());
  });
  for (const char* service : {"liveness", "readiness", ""}) {
    Await(service, kNotServing);
  }
  EXPECT_EQ(Check("startup"), kServing);
  for (const char* path : {"/liveness", "/readiness"}) {
    const std::string answer = Get(path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 ")) << path;
    EXPECT_THAT(answer, EndsWith("not ok: the dispatcher hangs\n")) << path;
  }
  observer_.release.Notify();
  for (const char* service : {"liveness", "readiness", ""}) {
    Await(service, kServing);
  }
  stuck.join();
  EXPECT_THAT(Get("/liveness"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HealthTest, ADrainingCoordinatorIsLiveButNeverReadyAgain) {
  StartHealth();
  Add(WorkerRole::kTarget);
  Await("readiness", kServing);
  health_->Drain();
  EXPECT_EQ(Check("readiness"), kNotServing);
  EXPECT_EQ(Check(""), kNotServing);
  EXPECT_EQ(Check("liveness"), kServing);
  EXPECT_THAT(Get("/readiness"), EndsWith("not ok: draining\n"));
  Add(WorkerRole::kDraft);
  EXPECT_EQ(Check("readiness"), kNotServing);
}

}  // namespace
}  // namespace nacre::coordinator
