// Two coordinators that share two targets and two drafts: one dies under
// streams, and every answer is whole and exact.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/two_coordinators.h"
#include "tests/telemetry/http_get.h"

namespace nacre::integration {
namespace {

class SeveralCoordinatorsTest : public TwoCoordinatorsTest {
 protected:
  // Every coordinator has all workers.
  bool AllAreBack() {
    for (const auto& coordinator : coordinators()) {
      const auto admin =
          v1::Admin::NewStub(rpc::CreateChannel(coordinator.admin));
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
      v1::ListWorkersResponse response;
      if (!admin->ListWorkers(&context, {}, &response).ok()) return false;
      int ready = 0;
      for (const auto& worker : response.workers()) ready += worker.ready();
      if (ready != 4) return false;
    }
    return true;
  }

  // No worker has granted more than it has.
  void CheckGrants() {
    int num_workers = 0;
    for (const std::string& line : service_.cluster().WorkerLines()) {
      const std::vector<std::string> parts = absl::StrSplit(line, "  metrics ");
      ASSERT_EQ(parts.size(), 2u) << line;
      const telemetry::Samples samples = telemetry::Scrape(parts[1]);
      for (const v1::WorkerInfo& worker : service_.Workers()) {
        const std::string label =
            absl::StrCat("worker=\"", worker.hello().address(), "\"");
        double granted = 0;
        int num_grants = 0;
        for (const auto& [sample, value] : samples) {
          if (sample.rfind("nacre_worker_kv_granted_tokens{", 0) != 0 ||
              sample.find(label) == std::string::npos) {
            continue;
          }
          granted += value;
          ++num_grants;
        }
        if (num_grants == 0) continue;  // of another worker
        EXPECT_EQ(num_grants, 2) << line;
        EXPECT_GT(granted, 0) << line;
        EXPECT_LE(granted,
                  static_cast<double>(worker.hello().kv_capacity_tokens()))
            << line;
        ++num_workers;
      }
    }
    EXPECT_EQ(num_workers, 4);
  }
};

TEST_F(SeveralCoordinatorsTest, ACoordinatorThatDiesCutsNoAnswer) {
  const Answer expected = Stream(0, MethodRequest(v1::METHOD_AR));
  ASSERT_TRUE(expected.complete);
  ASSERT_EQ(expected.ids.size(), size_t{kMaxTokens});
  for (size_t victim = 0; victim < 2; ++victim) {
    std::vector<std::thread> clients;
    const char* const methods[] = {"ar", "sd", "pearl", "async"};
    for (const char* method : methods) {
      clients.emplace_back(
          [&, method] { EXPECT_EQ(TextOverHttp(method), expected.text); });
    }
    std::atomic<int> cut{0};
    for (const v1::Method method :
         {v1::METHOD_AR, v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
      for (const size_t first : {victim, 1 - victim}) {
        clients.emplace_back([&, method, first] {
          const Answer answer = Stream(first, MethodRequest(method));
          EXPECT_EQ(answer.ids, expected.ids);
          EXPECT_EQ(answer.text, expected.text);
          cut += answer.calls - 1;
        });
      }
    }
    bool killed = false;
    const Answer answer =
        Stream(victim, MethodRequest(v1::METHOD_ASYNC), [&](size_t have) {
          if (have < 10 || std::exchange(killed, true)) return;
          CheckGrants();
          const pid_t pid = service_.cluster().supervisor().PidOf(
              coordinators()[victim].name);
          ASSERT_GT(pid, 0);
          kill(pid, SIGKILL);
        });
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.text, expected.text);
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(killed);
    EXPECT_GT(answer.calls, 1);
    RecordProperty(absl::StrCat("cut_", victim), cut.load());
    ASSERT_TRUE(Service::Eventually([this] { return AllAreBack(); }));
    EXPECT_TRUE(service_.KvReturnsToEmpty());
    CheckGrants();
  }
}

}  // namespace
}  // namespace nacre::integration
