// --max-running: a target runs no more streams at once than it may, whatever
// waits and whatever other targets are lost, and each stream says what it says
// alone.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"
#include "tests/telemetry/samples.h"

namespace nacre::integration {
namespace {

constexpr int kKinds = 3;
constexpr int kTokens = 64;
constexpr int kStreams = 6;
constexpr int kMaxRunning = 2;

class MaxRunningTest : public ::testing::Test {
 protected:
  ~MaxRunningTest() override { Join(); }

  void StartService(const std::vector<std::string>& targets) {
    ASSERT_NO_FATAL_FAILURE(processes_.StartWorker("draft", "draft"));
    for (const std::string& target : targets) {
      ASSERT_NO_FATAL_FAILURE(processes_.StartWorker(target, "target"));
    }
    ASSERT_NO_FATAL_FAILURE(
        processes_.AwaitReady(static_cast<int>(targets.size()) + 1));
    service_ = std::make_unique<Service>(processes_.address(),
                                         processes_.admin_address());
    expected_ = QuietRun(*service_, kKinds, kTokens);
    ASSERT_TRUE(service_->KvReturnsToEmpty());
    // The coordinator has heard so: a target that stands still could not say.
    ASSERT_TRUE(Service::Eventually(
        [this] { return Gauge("nacre_kv_reserved_tokens") == 0; }));
  }

  // Starts all streams while the targets stand still, and waits until so many
  // run and the others wait.
  void StartStreams(const std::vector<std::string>& targets, int running) {
    for (const std::string& target : targets) {
      processes_.Signal(target, SIGSTOP);
    }
    for (int i = 0; i < kStreams; ++i) {
      threads_.emplace_back([this, i] {
        const StreamOutcome outcome = RunStream(
            *service_, StreamRequest(i % kKinds, MethodOf(i), kTokens));
        EXPECT_TRUE(outcome.status.ok()) << i << ": " << outcome.status;
        EXPECT_TRUE(outcome.streamed == expected_[i % kKinds]) << i;
        ++num_ended_;
      });
    }
    EXPECT_TRUE(Service::Eventually([&] {
      return Gauge("nacre_num_requests_running") == running &&
             Gauge("nacre_num_requests_waiting") == kStreams - running;
    }));
    Look();
  }

  double Gauge(const char* name, const std::string& part = "") const {
    return telemetry::Sum(processes_.Scrape("coordinator"), name, part.c_str());
  }

  // Notes the most sessions that a target has, as the coordinator lists and as
  // it counts.
  void Look() {
    for (const v1::WorkerInfo& worker : service_->Workers()) {
      if (worker.hello().role() != v1::WORKER_ROLE_TARGET) continue;
      EXPECT_EQ(worker.max_sessions(), uint32_t{kMaxRunning});
      most_listed_ = std::max(most_listed_, worker.sessions());
      most_reported_ = std::max(most_reported_, worker.heartbeat().sessions());
    }
    for (const auto& [name, value] : processes_.Scrape("coordinator")) {
      if (name.rfind("nacre_sessions{role=\"target\"", 0) == 0) {
        most_counted_ = std::max(most_counted_, value);
      }
    }
  }

  void WatchToTheEnd() {
    while (num_ended_ < kStreams) {
      Look();
      absl::SleepFor(absl::Milliseconds(5));
    }
    Join();
    EXPECT_EQ(most_listed_, uint32_t{kMaxRunning});
    EXPECT_EQ(most_counted_, kMaxRunning);
    EXPECT_LE(most_reported_, uint32_t{kMaxRunning});
  }

  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  Processes processes_{
      {.coordinator = {absl::StrCat("--max-running=", kMaxRunning),
                       // A stopped target is not lost.
                       "--worker-timeout=10m", "--queue-timeout=inf",
                       "--failover-timeout=10m"},
       .workers = {"--hang-timeout=10m"}}};
  std::unique_ptr<Service> service_;
  std::vector<Tokens> expected_;
  std::vector<std::thread> threads_;
  std::atomic<int> num_ended_{0};
  uint32_t most_listed_ = 0;
  uint32_t most_reported_ = 0;  // by the target, in its heartbeats
  double most_counted_ = 0;
};

TEST_F(MaxRunningTest, ATargetRunsNoMoreAtOnceThanItMay) {
  ASSERT_NO_FATAL_FAILURE(StartService({"target"}));
  EXPECT_EQ(Gauge("nacre_max_running_sessions"), kMaxRunning);
  StartStreams({"target"}, kMaxRunning);
  EXPECT_EQ(Gauge("nacre_sessions", "role=\"target\""), kMaxRunning);
  processes_.Signal("target", SIGCONT);
  WatchToTheEnd();
  EXPECT_TRUE(service_->KvReturnsToEmpty());
}

TEST_F(MaxRunningTest, NorDoesOneThatTakesTheStreamsOfALostOne) {
  ASSERT_NO_FATAL_FAILURE(StartService({"t0", "t1"}));
  EXPECT_EQ(Gauge("nacre_max_running_sessions"), 2 * kMaxRunning);
  StartStreams({"t0", "t1"}, 2 * kMaxRunning);
  EXPECT_EQ(Gauge("nacre_sessions", "role=\"target\""), 2 * kMaxRunning);
  processes_.Signal("t0", SIGKILL);
  processes_.Signal("t1", SIGCONT);
  WatchToTheEnd();
  EXPECT_TRUE(service_->KvReturnsToEmpty());
}

}  // namespace
}  // namespace nacre::integration
