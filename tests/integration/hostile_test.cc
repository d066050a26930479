// Clients, connections and workers that mean harm, all at once and all the
// time, beside eight streams that mean none: these say what they say alone, no
// process dies, probes are answered, and the coordinator's memory comes back.
//
// NACRE_HOSTILE_SECONDS (label slow: 600) is how long. Then 5,000 connections
// are idle, and the memory counts to the tenth.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files.h"
#include "tests/integration/hostile_clients.h"
#include "tests/integration/hostile_workers.h"
#include "tests/integration/memory.h"
#include "tests/integration/probes.h"
#include "tests/integration/service_fixture.h"
#include "tests/integration/streams.h"
#include "tests/testing/sanitizers.h"
#include "tokenizer/tokenizer.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

constexpr int kStreams = 8;
constexpr int kKinds = 3;
constexpr int kTokens = 200;
// Of a process, reserved; each core brings threads with stacks and arenas.
const rlim_t kMostMemory =
    (rlim_t{4} << 30) +
    std::thread::hardware_concurrency() * (rlim_t{144} << 20);
// What may not be back yet where a busy machine has little time for it.
constexpr int64_t kSlack = 32 << 20;
constexpr char kToken[] = "friend-0123456789abcdef";
constexpr char kHostileToken[] = "hostile-0123456789abcdef";

// Enemies, each on a thread of its own that repeats its round.
class Enemies {
 public:
  using Round = std::function<void(int round, const absl::Notification& over)>;

  ~Enemies() { End(); }

  void Add(const std::string& name, Round round) {
    enemies_.push_back(std::make_unique<Enemy>());
    Enemy& enemy = *enemies_.back();
    enemy.name = name;
    enemy.thread = std::thread([this, &enemy, round = std::move(round)] {
      while (!over_.HasBeenNotified()) round(enemy.num_rounds++, over_);
    });
  }

  // Each has made a round at least.
  void End() {
    if (!over_.HasBeenNotified()) over_.Notify();
    for (const auto& enemy : enemies_) {
      enemy->thread.join();
      std::printf("%s: %d rounds\n", enemy->name.c_str(), enemy->num_rounds);
      EXPECT_GT(enemy->num_rounds, 0) << enemy->name;
    }
    enemies_.clear();
  }

 private:
  struct Enemy {
    std::string name;
    int num_rounds = 0;  // of its thread
    std::thread thread;
  };

  absl::Notification over_;
  std::vector<std::unique_ptr<Enemy>> enemies_;
};

class HostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* text = std::getenv("NACRE_HOSTILE_SECONDS")) {
      int seconds = 0;
      ASSERT_TRUE(absl::SimpleAtoi(text, &seconds)) << text;
      duration_ = absl::Seconds(seconds);
      is_long_ = true;
      polite_ = absl::Seconds(30);
      num_idle_ = 5000;
    }
    // The programs inherit both. They may have as many files as there can be,
    // and so much memory that only a process that loses control needs more.
    rlimit files{}, memory{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    ASSERT_GT(files.rlim_max, num_idle_ + 1000) << "ulimit -n is too low";
    if (nacre::testing::kIsSanitized) return;  // reserves much more
    ASSERT_EQ(getrlimit(RLIMIT_AS, &memory), 0);
    memory.rlim_cur = std::min<rlim_t>(memory.rlim_max, kMostMemory);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &memory), 0);
  }

  void StartService() {
    const std::string tokens = folder_.path() + "/tokens";
    std::ofstream(tokens) << "friend:" << kToken
                          << "\nhostile:" << kHostileToken << "\n";
    tools::Cluster::Options options = Service::Options();
    options.auth_tokens_file = tokens;
    options.metrics_port = 0;
    options.log_dir = folder_.path();  // they log every request
    options.more_args.coordinator = {"--client-timeout=10s"};
    options.supervisor.report = [this](const std::string& line) {
      absl::MutexLock lock(&mu_);
      deaths_.push_back(line);
    };
    service_ = std::make_unique<Service>(std::move(options));
    tools::Cluster& cluster = service_->cluster();
    prey_ = {cluster.address(), cluster.registry_address(),
             cluster.admin_address(), cluster.metrics_address(), kHostileToken};
    const auto tokenizer = tokenizer::LoadTokenizer(TargetModel());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    true_workers_.vocabulary_proof =
        (*tokenizer)->VocabularyHash((*tokenizer)->vocab_size());
    for (const v1::WorkerInfo& worker : service_->Workers()) {
      (worker.hello().role() == v1::WORKER_ROLE_TARGET ? true_workers_.target
                                                       : true_workers_.draft) =
          worker.hello();
    }
    expected_ = QuietRun(*service_, kKinds, kTokens);
  }

  // Streams for so long; each is right.
  void RunStreams(absl::Duration duration) {
    std::atomic<bool> over{false};
    std::atomic<int> num_right{0};
    std::vector<std::thread> streams;
    for (int stream = 0; stream < kStreams; ++stream) {
      streams.emplace_back([&, stream] {
        for (int i = stream; i == stream || !over; ++i) {
          const StreamOutcome outcome = RunStream(
              *service_, StreamRequest(i % kKinds, MethodOf(i), kTokens));
          EXPECT_TRUE(outcome.status.ok()) << outcome.status;
          EXPECT_EQ(outcome.streamed, expected_[i % kKinds]);
          num_right += outcome.status.ok();
        }
      });
    }
    absl::SleepFor(duration);
    over = true;
    for (std::thread& stream : streams) stream.join();
    std::printf("%d streams right\n", num_right.load());
  }

  // What gRPC and malloc take for the first burst of connections stays, for the
  // next one to use: gRPC frees no object of a descriptor, and threads keep
  // small pieces between what the burst has freed. That is no leak. So there is
  // one before the memory counts: as many connections at once as the enemies
  // keep, and in the long form one round of half messages, small and large. Of
  // all that comes later nothing may stay.
  void WarmUp() {
    const absl::Notification never;
    IdleConnections connections(prey_, num_idle_);
    connections.Round(never);
    if (!is_long_) return;
    SendHalfMessages(prey_, never);
    SendLargeHalves(prey_, never);
  }

  // The same beside all enemies.
  void Attack(absl::Duration duration) {
    const Prey& prey = prey_;
    const TrueWorkers& workers = true_workers_;
    IdleConnections idle(prey, num_idle_);
    Enemies enemies;
    using Over = const absl::Notification&;
    enemies.Add("oversized prompts",
                [&](int i, Over) { SendOversizedPrompts(prey, i); });
    enemies.Add("no token", [&](int i, Over) { SendWithoutToken(prey, i); });
    enemies.Add("bombs", [&](int i, Over) { SendBombs(prey, i); });
    enemies.Add("unread answers",
                [&](int, Over over) { LeaveAnswersUnread(prey, over); });
    enemies.Add("slow reader", [&](int, Over over) { ReadSlowly(prey, over); });
    enemies.Add("half messages",
                [&](int, Over over) { SendHalfMessages(prey, over); });
    // More than all connections may hold together.
    for (int i = 0; i < 2; ++i) {
      enemies.Add("large half messages",
                  [&](int, Over over) { SendLargeHalves(prey, over); });
    }
    enemies.Add("idle connections", [&](int, Over over) { idle.Round(over); });
    enemies.Add("copied Hello", [&](int i, Over over) {
      AttachWithCopiedHello(prey, workers, i, over);
    });
    int num_verdicts = 0;  // each of its own thread
    int num_tails = 0;
    enemies.Add("absurd verdicts", [&](int i, Over over) {
      num_verdicts += TellAbsurdVerdicts(prey, workers, i, over);
    });
    enemies.Add("absurd tails", [&](int i, Over over) {
      num_tails += TellAbsurdTails(prey, workers, i, over);
    });
    RunStreams(duration);
    enemies.End();
    std::printf("sessions with absurd verdicts: %d, tails: %d\n", num_verdicts,
                num_tails);
    EXPECT_GT(num_verdicts, 0);
    // A session takes the draft that has least to do: it may be the true one.
    if (is_long_) {
      EXPECT_GT(num_tails, 0);
    }
  }

  // Nothing runs, waits or is attached that should not be.
  void ExpectQuiet() {
    EXPECT_TRUE(Service::Eventually([this] {
      const v1::ServerInfo info = service_->ServerInfo();
      const auto workers = service_->Workers();
      return info.running_requests() + info.queued_requests() == 0 &&
             workers.size() == 2 && workers[0].ready() && workers[1].ready();
    }));
    EXPECT_TRUE(service_->KvReturnsToEmpty());
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(deaths_.empty()) << (deaths_.empty() ? "" : deaths_.front());
  }

  int64_t CoordinatorBytes() {
    return ResidentBytes(service_->cluster().supervisor().PidOf("coordinator"));
  }

  // The coordinator has started itself again, as the same process
  // (common/heap_trimmer.h).
  void ExpectNoThreadCaches() {
    const pid_t pid = service_->cluster().supervisor().PidOf("coordinator");
    const auto environment = ReadFile(absl::StrCat("/proc/", pid, "/environ"));
    ASSERT_TRUE(environment.ok()) << environment.status();
    EXPECT_TRUE(absl::StrContains(*environment, "glibc.malloc.tcache_count="));
  }

  // The least in the time in which what is unused goes back.
  int64_t SettledBytes() {
    int64_t least = CoordinatorBytes();
    for (int i = 0; is_long_ && i < 10; ++i) {
      absl::SleepFor(absl::Seconds(1));
      least = std::min(least, CoordinatorBytes());
    }
    return least;
  }

  absl::Duration duration_ = absl::Seconds(10);
  absl::Duration polite_ = absl::Seconds(3);
  bool is_long_ = false;
  size_t num_idle_ = 200;
  const tools::TemporaryFolder folder_;
  absl::Mutex mu_;
  std::vector<std::string> deaths_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Service> service_;
  Prey prey_;
  TrueWorkers true_workers_;
  std::vector<Tokens> expected_;
};

TEST_F(HostileTest, StreamsBesideEnemiesAreRightAndNothingStays) {
  ASSERT_NO_FATAL_FAILURE(StartService());
  ASSERT_NO_FATAL_FAILURE(ExpectNoThreadCaches());
  const int64_t fresh = CoordinatorBytes();
  WarmUp();
  RunStreams(polite_);
  ExpectQuiet();
  const int64_t before = SettledBytes();

  // As the probes in docs/operations.md: three failures in a row are a restart.
  Probes probes(prey_.metrics, prey_.clients, /*patience=*/absl::Seconds(3),
                /*period=*/absl::Milliseconds(500));
  Attack(duration_);
  for (const Probes::Outcome& outcome : probes.Stop()) {
    std::printf("%s\n", outcome.ToString().c_str());
    EXPECT_GT(outcome.count, 0);
    EXPECT_LT(outcome.failed_in_a_row, 3) << outcome.ToString();
  }
  ExpectQuiet();
  const int64_t peak = CoordinatorBytes();
  // What gRPC frees late counts as returned, and what is trimmed late.
  const int64_t most =
      before + (is_long_ ? before / 10 : std::max(before / 10, kSlack));
  int64_t after = 0;
  EXPECT_TRUE(Service::Eventually([&] {
    after = CoordinatorBytes();
    return after <= most;
  })) << "resident bytes: "
      << before << " before, " << after << " after";
  std::printf(
      "coordinator: %lld MiB fresh, %lld after polite clients, "
      "%lld after the others, %lld then\n",
      static_cast<long long>(fresh >> 20), static_cast<long long>(before >> 20),
      static_cast<long long>(peak >> 20), static_cast<long long>(after >> 20));
}

}  // namespace
}  // namespace nacre::integration
