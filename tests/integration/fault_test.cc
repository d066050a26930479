// What the service does when workers die, clients leave, or strangers talk to
// it: real processes, real signals.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/integration/streams.h"
#include "tests/testing/loopback.h"

namespace nacre::integration {
namespace {

constexpr char kPrompt[] =
    "Question: A baker makes 12 loaves and sells 7 of them. How many are "
    "left?\nAnswer:";

v1::GenerateRequest LongRequest(v1::Method method, int max_tokens) {
  v1::GenerateRequest request = Request(kPrompt, method, max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(5);
  request.mutable_output()->set_stream(true);
  return request;
}

TEST(FaultTest, WithoutADraftEveryMethodSaysTheSameTokens) {
  Service service(/*drafts=*/0);
  const auto ar = service.Generate(LongRequest(v1::METHOD_AR, 100));
  ASSERT_TRUE(ar.ok()) << ar.status();
  EXPECT_EQ(ar->speculation().degraded_rounds(), 0u);
  for (v1::Method method :
       {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
    const auto complete = service.Generate(LongRequest(method, 100));
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_EQ(Ids(*complete), Ids(*ar)) << v1::Method_Name(method);
    // There never was a draft: none is missing.
    EXPECT_EQ(complete->speculation().degraded_rounds(), 0u);
    EXPECT_EQ(complete->speculation().accepted(), 0u);
  }
}

TEST(FaultTest, AKilledDraftCostsNoTokenAndARestartedOneJoinsRunningSessions) {
  Service service;
  constexpr int kTokens = 1500;
  const auto expected = service.Generate(LongRequest(v1::METHOD_AR, kTokens));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (v1::Method method :
       {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
    // Kills the draft twice while the answer streams.
    int seen = 0, kills = 0;
    const auto complete = service.client().Generate(
        LongRequest(method, kTokens), kCallTimeout,
        [&](const v1::Chunk& chunk) {
          seen += chunk.token_ids_size();
          if ((kills == 0 && seen > 50) || (kills == 1 && seen > 900)) {
            const pid_t pid = service.cluster().supervisor().PidOf("draft-0");
            if (pid > 0 && kill(pid, SIGKILL) == 0) ++kills;
          }
        });
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_GE(kills, 1);
    EXPECT_EQ(Ids(*complete), Ids(*expected)) << v1::Method_Name(method);
    EXPECT_GT(complete->speculation().degraded_rounds(), 0u);
    ASSERT_TRUE(Service::Eventually([&] {
      const auto workers = service.Workers();
      return workers.size() == 2 && workers[0].ready() && workers[1].ready();
    }));
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

TEST(FaultTest, AStoppedDraftOnlySlowsTheAnswer) {
  Service service;
  const auto expected = service.Generate(LongRequest(v1::METHOD_AR, 300));
  ASSERT_TRUE(expected.ok()) << expected.status();
  const pid_t draft = service.cluster().supervisor().PidOf("draft-0");
  ASSERT_GT(draft, 0);
  for (v1::Method method :
       {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
    bool stopped = false;
    const auto complete = service.client().Generate(
        LongRequest(method, 300), kCallTimeout, [&](const v1::Chunk&) {
          if (!stopped) stopped = kill(draft, SIGSTOP) == 0;
        });
    kill(draft, SIGCONT);
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_EQ(Ids(*complete), Ids(*expected)) << v1::Method_Name(method);
  }
}

TEST(FaultTest, AKilledTargetsStreamsGoOnWhenItIsBackWithTheSameTokens) {
  Service service;
  constexpr int kTokens = 600;
  const auto expected = service.Generate(LongRequest(v1::METHOD_AR, kTokens));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (v1::Method method : {v1::METHOD_AR, v1::METHOD_ASYNC}) {
    std::vector<uint32_t> streamed;
    bool killed = false;
    const auto complete = service.client().Generate(
        LongRequest(method, kTokens), kCallTimeout,
        [&](const v1::Chunk& chunk) {
          EXPECT_EQ(chunk.first_index(), streamed.size());
          streamed.insert(streamed.end(), chunk.token_ids().begin(),
                          chunk.token_ids().end());
          if (killed || streamed.size() < 50) return;
          const pid_t pid = service.cluster().supervisor().PidOf("target-0");
          killed = pid > 0 && kill(pid, SIGKILL) == 0;
        });
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_TRUE(killed);
    EXPECT_EQ(Ids(*complete), Ids(*expected)) << v1::Method_Name(method);
    EXPECT_EQ(streamed, Ids(*expected));
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

tools::Cluster::Options TwoTargets() {
  tools::Cluster::Options options = Service::Options(/*drafts=*/2);
  options.targets = 2;
  options.more_args.coordinator = {"--worker-timeout=2s"};
  return options;
}

bool AllReady(Service& service, size_t count) {
  return Service::Eventually([&] {
    const auto workers = service.Workers();
    return workers.size() == count &&
           std::all_of(workers.begin(), workers.end(),
                       [](const v1::WorkerInfo& w) { return w.ready(); });
  });
}

// A stream of each method on two targets: whatever happens to one, the tokens
// are those of a quiet service.
TEST(FaultTest, AStoppedTargetCountsAsLostAndIsWelcomeWhenItGoesOn) {
  Service service(TwoTargets());
  const std::vector<Tokens> expected = QuietRun(service, 3, 1000);
  const pid_t target = service.cluster().supervisor().PidOf("target-0");
  const pid_t draft = service.cluster().supervisor().PidOf("draft-0");
  for (int kind = 1; kind < 3; ++kind) {
    std::atomic<bool> stopped{false};
    ExpectAllMethods(service, kind, expected[kind], [&](size_t tokens) {
      if (tokens < 30 || stopped.exchange(true)) return;
      kill(target, SIGSTOP);
      kill(draft, SIGSTOP);
    });
    EXPECT_TRUE(stopped);
    EXPECT_TRUE(
        Service::Eventually([&] { return service.Workers().size() == 2; }));
    kill(target, SIGCONT);
    kill(draft, SIGCONT);
    EXPECT_TRUE(AllReady(service, 4));
  }
  EXPECT_EQ(service.cluster().supervisor().PidOf("target-0"), target);
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

TEST(FaultTest, ATerminatedWorkersStreamsMoveAndItExitsAtOnce) {
  tools::Cluster::Options options = TwoTargets();
  absl::Mutex mu;
  std::vector<std::string> reports;
  options.supervisor.report = [&](const std::string& line) {
    absl::MutexLock lock(&mu);
    reports.push_back(line);
  };
  Service service(std::move(options));
  const std::vector<Tokens> expected = QuietRun(service, 2, 1000);
  tools::Supervisor& supervisor = service.cluster().supervisor();
  std::atomic<bool> terminated{false};
  ExpectAllMethods(service, 1, expected[1], [&](size_t tokens) {
    if (tokens < 30 || terminated.exchange(true)) return;
    kill(supervisor.PidOf("target-1"), SIGTERM);
    kill(supervisor.PidOf("draft-1"), SIGTERM);
  });
  EXPECT_TRUE(terminated);
  EXPECT_TRUE(Service::Eventually([&] {
    absl::MutexLock lock(&mu);
    return std::count_if(reports.begin(), reports.end(),
                         [](const std::string& line) {
                           return absl::StrContains(line, "exit code 0");
                         }) == 2;
  }));
  EXPECT_TRUE(AllReady(service, 4));
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

TEST(FaultTest, AKilledCoordinatorEndsItsCallsAtOnceAndItsWorkersComeBack) {
  Service service(TwoTargets());
  const std::vector<Tokens> expected = QuietRun(service, 1, 1000);
  tools::Supervisor& supervisor = service.cluster().supervisor();
  const pid_t target = supervisor.PidOf("target-0");
  bool killed = false;
  const StreamOutcome outcome = RunStream(
      service, StreamRequest(0, v1::METHOD_ASYNC, 1000), [&](size_t tokens) {
        if (tokens < 30 || killed) return;
        killed = kill(supervisor.PidOf("coordinator"), SIGKILL) == 0;
      });
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable)
      << outcome.status;
  EXPECT_TRUE(std::equal(outcome.streamed.begin(), outcome.streamed.end(),
                         expected[0].begin()));
  EXPECT_TRUE(Service::Eventually([&] {
    return RunStream(service, StreamRequest(0, v1::METHOD_ASYNC, 1000))
               .streamed == expected[0];
  }));
  EXPECT_TRUE(AllReady(service, 4));
  EXPECT_EQ(supervisor.PidOf("target-0"), target);
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

TEST(FaultTest, CancelledCallsFreeTheKvOfBothWorkers) {
  Service service;
  for (int i = 0; i < 8; ++i) {
    auto client =
        std::make_unique<tools::GenerationClient>(service.cluster().address());
    const auto complete = client->Generate(
        LongRequest(static_cast<v1::Method>(1 + i % 4), 1500), kCallTimeout,
        [&](const v1::Chunk&) { client->CancelAll(); });
    EXPECT_EQ(complete.status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
  // A deadline is a cancellation too.
  const auto late =
      service.client().Generate(LongRequest(v1::METHOD_ASYNC, 1900),
                                absl::Milliseconds(30), [](const auto&) {});
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

// Connects to host:port, writes `bytes` and waits until the server hangs up;
// what it answers does not matter.
void SendRaw(const std::string& address, const std::string& bytes) {
  nacre::testing::LoopbackConnection connection(address);
  ASSERT_TRUE(connection.connected()) << std::strerror(errno);
  connection.Send(bytes);
  connection.HalfClose();
  connection.ReadAll();
  EXPECT_TRUE(errno == 0 || errno == ECONNRESET) << std::strerror(errno);
}

TEST(FaultTest, GarbageOnAnyPortChangesNothing) {
  Service service;
  const auto expected = service.Generate(LongRequest(v1::METHOD_AR, 200));
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<std::string> addresses = {service.cluster().address(),
                                        service.cluster().registry_address(),
                                        service.cluster().admin_address()};
  for (const v1::WorkerInfo& worker : service.Workers()) {
    addresses.push_back(worker.hello().address());
  }
  std::mt19937 random(3);
  std::string noise(4096, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  std::atomic<bool> done{false};
  std::thread attacker([&] {
    while (!done) {
      for (const std::string& address : addresses) {
        SendRaw(address, noise);
        SendRaw(address, "GET / HTTP/1.1\r\n\r\n");
        SendRaw(address,
                absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", noise));
      }
    }
  });
  const auto complete = service.Generate(LongRequest(v1::METHOD_ASYNC, 200));
  done = true;
  attacker.join();
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(Ids(*complete), Ids(*expected));
  EXPECT_EQ(service.Workers().size(), 2u);
}

TEST(FaultTest, BadRequestsAreNamedAndLeaveTheServiceWell) {
  Service service;
  const auto code = [&](const std::function<void(v1::GenerateRequest*)>& edit) {
    v1::GenerateRequest request = Request(kPrompt, v1::METHOD_ASYNC, 8);
    edit(&request);
    return service.Generate(request).status();
  };
  EXPECT_TRUE(code([](auto*) {}).ok());
  const absl::Status negative =
      code([](auto* r) { r->mutable_sampling()->set_temperature(-1); });
  EXPECT_EQ(negative.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(negative.message().find("temperature is -1"), std::string::npos);
  EXPECT_EQ(code([](auto* r) {
              r->mutable_sampling()->set_top_p(std::nanf(""));
            }).code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status context =
      code([](auto* r) { r->mutable_stop()->set_max_tokens(2048); });
  EXPECT_EQ(context.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(context.message().find("2048"), std::string::npos);
  EXPECT_EQ(code([](auto* r) { r->clear_prompt(); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->mutable_token_ids()->add_ids(4096); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->mutable_token_ids(); }).code(),
            absl::StatusCode::kInvalidArgument);
  // An empty text still has its BOS.
  EXPECT_TRUE(code([](auto* r) { r->set_text(""); }).ok());
  EXPECT_TRUE(code([](auto*) {}).ok());
}

}  // namespace
}  // namespace nacre::integration
