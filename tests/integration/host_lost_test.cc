// A host is lost with all that ran there: a target, a draft and one of two
// coordinators at once, for good. Every stream goes on with what is left, and
// says what it says alone.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/files.h"
#include "tests/integration/two_coordinators.h"
#include "tests/telemetry/http_get.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

constexpr int kClients = 8;  // of each kind
constexpr char kDirect[] = "direct-";
// A target runs at most 64 tokens ahead of what its coordinator has: while the
// targets stand still no session with as few tokens as this can end.
constexpr uint32_t kMidway = kMaxTokens - 2 * 64;

class HostLostTest : public TwoCoordinatorsTest {
 protected:
  HostLostTest()
      : TwoCoordinatorsTest(LostForGood()),
        target_(WorkerAddress("target-0")),
        draft_(WorkerAddress("draft-0")) {}
  ~HostLostTest() override { Join(); }

  static const tools::TemporaryFolder& Folder() {
    static const tools::TemporaryFolder folder;
    return folder;
  }
  static std::string GatewayMetrics() {
    return Folder().path() + "/gateway.metrics";
  }
  static tools::Cluster::Options LostForGood() {
    tools::Cluster::Options options = Options();
    // What is killed does not come back while the test runs.
    options.supervisor.backoff = absl::Hours(24);
    options.supervisor.max_backoff = absl::Hours(24);
    for (const std::string& flag :
         {std::string("--metrics-listen=127.0.0.1:0"),
          "--metrics-address-file=" + GatewayMetrics()}) {
      options.more_args.gateway.push_back(flag);
    }
    return options;
  }

  void Signal(const std::string& process, int signal_number) {
    const pid_t pid = service_.cluster().supervisor().PidOf(process);
    ASSERT_GT(pid, 0) << process;
    kill(pid, signal_number);
  }

  // host:port of a worker, as its metrics name it.
  std::string WorkerAddress(const std::string& name) {
    for (const std::string& line : service_.cluster().WorkerLines()) {
      if (!absl::StartsWith(line, name + " ")) continue;
      const std::vector<std::string> parts = absl::StrSplit(line, "  metrics ");
      for (const auto& [sample, value] : telemetry::Scrape(parts.back())) {
        const std::vector<std::string> labels = absl::StrSplit(sample, '"');
        for (size_t i = 0; i + 1 < labels.size(); ++i) {
          if (absl::EndsWith(labels[i], "worker=")) return labels[i + 1];
        }
      }
    }
    ADD_FAILURE() << "no address of " << name;
    return "";
  }

  std::unique_ptr<v1::Admin::Stub> AdminOf(size_t coordinator) {
    return v1::Admin::NewStub(
        rpc::CreateChannel(coordinators()[coordinator].admin));
  }

  // A client asks again and again until the host is lost: then it is in the
  // middle of an answer.
  void StartClient(const std::function<void(int round)>& ask) {
    clients_.emplace_back([this, ask] {
      for (int round = 0; !lost_ && !HasFailure(); ++round) ask(round);
    });
  }
  void Join() {
    lost_ = true;
    for (std::thread& client : clients_) client.join();
    clients_.clear();
  }

  // Of the sessions of a coordinator that are midway.
  bool AnyMidway(size_t coordinator,
                 const std::function<bool(const v1::SessionInfo&)>& is_such) {
    grpc::ClientContext context;
    v1::ListSessionsResponse response;
    const grpc::Status status =
        AdminOf(coordinator)->ListSessions(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return std::any_of(response.sessions().begin(), response.sessions().end(),
                       [&](const v1::SessionInfo& session) {
                         return session.generated_tokens() > 0 &&
                                session.generated_tokens() <= kMidway &&
                                is_such(session);
                       });
  }
  // Stops the targets where the host has a part in streams of every kind, else
  // lets them go on.
  bool StopsMidway() {
    for (const char* target : {"target-0", "target-1"}) {
      Signal(target, SIGSTOP);
    }
    const auto is_direct = [](const v1::SessionInfo& session) {
      return absl::StartsWith(session.request_id(), kDirect);
    };
    const bool midway =
        AnyMidway(0, is_direct) &&
        AnyMidway(0, [&](const auto& s) { return !is_direct(s); }) &&
        AnyMidway(
            1, [&](const auto& s) { return s.target_address() == target_; }) &&
        AnyMidway(1,
                  [&](const auto& s) { return s.draft_address() == draft_; });
    if (midway) return true;
    for (const char* target : {"target-0", "target-1"}) {
      Signal(target, SIGCONT);
    }
    return false;
  }

  // The coordinator that is left has the workers that are left, and these hold
  // nothing any more.
  bool IsAtRest() {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    if (!AdminOf(1)->ListWorkers(&context, {}, &response).ok()) return false;
    for (const v1::WorkerInfo& worker : response.workers()) {
      const std::string& address = worker.hello().address();
      if (address == target_ || address == draft_ || !worker.ready() ||
          worker.heartbeat().sessions() != 0 ||
          worker.heartbeat().kv_free_tokens() !=
              worker.hello().kv_capacity_tokens()) {
        return false;
      }
    }
    return response.workers_size() == 2;
  }

  std::atomic<bool> lost_{false};
  std::atomic<int> cut_{0};  // direct streams

 private:
  const std::string target_;  // of the workers that are lost
  const std::string draft_;
  std::vector<std::thread> clients_;
};

TEST_F(HostLostTest, EveryStreamGoesOnWhereATargetADraftAndACoordinatorDie) {
  const Answer expected = Stream(0, MethodRequest(v1::METHOD_AR));
  ASSERT_TRUE(expected.complete);
  ASSERT_EQ(expected.ids.size(), size_t{kMaxTokens});
  static constexpr const char* kNames[] = {"ar", "sd", "pearl", "async"};
  for (int i = 0; i < kClients; ++i) {
    StartClient([this, i, &expected](int) {
      EXPECT_EQ(TextOverHttp(kNames[i % 4]), expected.text);
    });
    // Half of them at the coordinator that dies.
    StartClient([this, i, &expected](int round) {
      v1::GenerateRequest request =
          MethodRequest(static_cast<v1::Method>(v1::METHOD_AR + i % 4));
      request.set_request_id(absl::StrCat(kDirect, i, "-", round));
      const Answer answer = Stream(i / 4 % 2, request);
      EXPECT_EQ(answer.ids, expected.ids);
      EXPECT_EQ(answer.text, expected.text);
      cut_ += answer.calls - 1;
    });
  }
  ASSERT_TRUE(Service::Eventually([this] { return StopsMidway(); }));
  for (const std::string& process :
       {coordinators()[0].name, std::string("target-0"),
        std::string("draft-0")}) {
    Signal(process, SIGKILL);
  }
  Signal("target-1", SIGCONT);
  Join();
  EXPECT_GT(cut_, 0);
  const auto metrics = ReadFile(GatewayMetrics());
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_GT(
      telemetry::Sum(
          telemetry::Scrape(std::string(absl::StripAsciiWhitespace(*metrics))),
          "nacre_http_further_calls_total", "resume"),
      0);
  EXPECT_TRUE(Service::Eventually([this] { return IsAtRest(); }));
  EXPECT_EQ(TextOverHttp("async"), expected.text);
}

}  // namespace
}  // namespace nacre::integration
