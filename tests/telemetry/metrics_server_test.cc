#include "telemetry/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/telemetry/http_get.h"

namespace nacre::telemetry {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MetricsServerTest, ServesItsSourcesAndTheBuild) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::Counter& counter = prometheus::BuildCounter()
                                     .Name("nacre_tests_total")
                                     .Help("For this test.")
                                     .Register(*registry)
                                     .Add({{"kind", "unit"}});
  const std::string file = ::testing::TempDir() + "/nacre_metrics_address_" +
                           std::to_string(getpid());
  const auto server = MetricsServer::Start({"127.0.0.1:0", file}, {registry});
  ASSERT_TRUE(server.ok()) << server.status();
  counter.Increment(3);
  const std::string answer = HttpGet((*server)->address(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(answer, HasSubstr("# TYPE nacre_tests_total counter\n"));
  const Samples samples = ParseSamples(answer);
  EXPECT_EQ(samples.at("nacre_tests_total{kind=\"unit\"}"), 3);
  EXPECT_EQ(Sum(samples, "nacre_build_info", "version=\"0."), 1);
  EXPECT_THAT(HttpGet((*server)->address(), "/else"),
              StartsWith("HTTP/1.1 404"));

  std::string written;
  std::ifstream(file) >> written;
  EXPECT_EQ(written, (*server)->address());
  std::remove(file.c_str());
}

TEST(MetricsServerTest, ProbesAskForTheHealthOfNow) {
  HealthState state;
  absl::Mutex mu;
  const auto set = [&](bool live, bool ready, const std::string& note) {
    absl::MutexLock lock(&mu);
    state = {live, ready, note};
  };
  const auto server = MetricsServer::Start({"127.0.0.1:0", ""}, {}, [&] {
    absl::MutexLock lock(&mu);
    return state;
  });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto get = [&](const char* path) {
    return HttpGet((*server)->address(), path);
  };
  set(true, true, "a word");
  EXPECT_THAT(get("/liveness"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(get("/readiness"), EndsWith("\r\n\r\nok: a word\n"));
  set(true, false, "not yet");
  EXPECT_THAT(get("/liveness"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(get("/readiness"), StartsWith("HTTP/1.1 503 "));
  set(false, false, "stuck");
  EXPECT_THAT(get("/startup"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(get("/liveness"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get("/liveness"), EndsWith("\r\n\r\nnot ok: stuck\n"));

  const auto without = MetricsServer::Start({"127.0.0.1:0", ""}, {});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(HttpGet((*without)->address(), "/liveness"),
              StartsWith("HTTP/1.1 404"));
}

// A source that a hung process does not let go of.
class HungSource final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    if (!asked_.HasBeenNotified()) asked_.Notify();
    released_.WaitForNotification();
    return {};
  }
  void AwaitAsked() const { asked_.WaitForNotification(); }
  void Release() { released_.Notify(); }

 private:
  mutable absl::Notification asked_;
  absl::Notification released_;
};

TEST(MetricsServerTest, AScrapeThatHangsDelaysNoProbe) {
  const auto source = std::make_shared<HungSource>();
  const auto server = MetricsServer::Start({"127.0.0.1:0", ""}, {source}, [] {
    return HealthState{false, false, "the dispatcher hangs"};
  });
  ASSERT_TRUE(server.ok()) << server.status();
  constexpr int kScrapes = 5;
  std::vector<std::string> answers(kScrapes);
  std::vector<std::thread> scrapes;
  for (std::string& answer : answers) {
    scrapes.emplace_back([&server, &answer] {
      answer = HttpGet((*server)->address(), "/metrics");
    });
  }
  source->AwaitAsked();
  for (const char* probe : {"/liveness", "/readiness"}) {
    const std::string answer = HttpGet((*server)->address(), probe);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 ")) << probe;
    EXPECT_THAT(answer, EndsWith("\r\n\r\nnot ok: the dispatcher hangs\n"));
  }
  source->Release();
  for (std::thread& scrape : scrapes) scrape.join();
  for (const std::string& answer : answers) {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
    EXPECT_THAT(answer, HasSubstr("nacre_build_info"));
  }
}

TEST(MetricsServerTest, SaysWhyItCannotServe) {
  const auto first = MetricsServer::Start({"127.0.0.1:0", ""}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto taken = MetricsServer::Start({(*first)->address(), ""}, {});
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()),
              HasSubstr((*first)->address()));
  const auto bad = MetricsServer::Start({"9464", ""}, {});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  const auto file =
      MetricsServer::Start({"127.0.0.1:0", "/nonexistent/file"}, {});
  EXPECT_EQ(file.status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace nacre::telemetry
