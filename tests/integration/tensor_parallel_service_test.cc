// A target that is split among two ranks, through the real processes: all
// methods say its tokens, and when such a worker dies its streams go on at
// another, with other ranks but the same arithmetic.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/cpu_list.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

// Targets of two ranks, each on a core of its own; the targets share them.
class TensorParallelServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (AvailableCpus().size() < 2) GTEST_SKIP() << "ranks need two cores";
  }
};

tools::Cluster::Options SplitTargets(int targets) {
  std::vector<int> cores = AvailableCpus();
  cores.resize(2);
  tools::Cluster::Options options = Service::Options(/*drafts=*/1);
  options.targets = targets;
  options.more_args.target = {"--tensor-parallel=2",
                              "--cpus=" + FormatCpuList(cores)};
  options.more_args.coordinator = {"--worker-timeout=2s"};
  return options;
}

TEST_F(TensorParallelServiceTest, EveryMethodSaysTheSameTokens) {
  Service service(SplitTargets(1));
  const std::vector<Tokens> expected = QuietRun(service, 3, 48);
  for (int kind = 0; kind < 3; ++kind) {
    ExpectAllMethods(service, kind, expected[static_cast<size_t>(kind)]);
  }
  for (const v1::WorkerInfo& worker : service.Workers()) {
    if (worker.hello().role() == v1::WORKER_ROLE_TARGET) {
      EXPECT_TRUE(absl::StrContains(worker.hello().numerics_id(), "-shards8-"));
    }
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

TEST_F(TensorParallelServiceTest, AKilledWorkersStreamsGoOnWithTheSameTokens) {
  Service service(SplitTargets(2));
  constexpr int kKind = 1;
  const std::vector<Tokens> expected = QuietRun(service, kKind + 1, 96);
  std::atomic<bool> killed{false};
  ExpectAllMethods(service, kKind, expected[kKind], [&](size_t tokens) {
    if (tokens < 16 || killed.exchange(true)) return;
    kill(service.cluster().supervisor().PidOf("target-0"), SIGKILL);
  });
  EXPECT_TRUE(killed);
  EXPECT_TRUE(Service::Eventually([&] {
    const auto workers = service.Workers();
    return workers.size() == 3 &&
           std::all_of(workers.begin(), workers.end(),
                       [](const v1::WorkerInfo& w) { return w.ready(); });
  }));
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

}  // namespace
}  // namespace nacre::integration
