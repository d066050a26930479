// Workers die and hang at random, all the time, under eight streams: each
// stream says what a quiet service says, or ends with the documented status.
//
// NACRE_STORM="KILLS,STOPS" and NACRE_STORM_SEED choose another storm.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

constexpr int kStreams = 8;
constexpr int kKinds = 3;
constexpr int kTokens = 800;

struct Storm {
  int kills = 10;
  int stops = 5;
  unsigned seed = 1;
};

Storm StormOfEnvironment() {
  Storm storm;
  if (const char* text = std::getenv("NACRE_STORM")) {
    const std::vector<std::string> parts = absl::StrSplit(text, ',');
    EXPECT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[0], &storm.kills) &&
                absl::SimpleAtoi(parts[1], &storm.stops))
        << "NACRE_STORM is KILLS,STOPS, not " << text;
  }
  if (const char* text = std::getenv("NACRE_STORM_SEED")) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &storm.seed)) << text;
  }
  return storm;
}

// Kills and stops, one at a time, at times and of workers that the seed
// chooses; what is stopped goes on after up to 4 s, half of it after the
// coordinator has given it up.
class Weather {
 public:
  Weather(tools::Supervisor& workers, const Storm& storm)
      : workers_(workers), random_(storm.seed) {
    faults_.insert(faults_.end(), storm.kills, SIGKILL);
    faults_.insert(faults_.end(), storm.stops, SIGSTOP);
    std::shuffle(faults_.begin(), faults_.end(), random_);
  }

  void Run() {
    const std::string names[] = {"target-0", "target-1", "draft-0", "draft-1"};
    for (int fault : faults_) {
      SleepUntil(absl::Now() + Between(0.2, 2.6));
      pid_t pid = 0;
      // Each may just be between two lives, for long where the machine is busy.
      const absl::Time deadline = absl::Now() + absl::Minutes(3);
      while (pid <= 0 || kill(pid, fault) != 0) {
        if (absl::Now() > deadline) {
          ADD_FAILURE() << "no worker has come back for three minutes";
          return;
        }
        SleepUntil(absl::Now() + absl::Milliseconds(10));
        pid = workers_.PidOf(names[random_() % 4]);
      }
      if (fault == SIGSTOP) {
        stopped_.emplace(absl::Now() + Between(0.1, 4.0), pid);
      }
    }
    SleepUntil(stopped_.empty() ? absl::Now() : stopped_.rbegin()->first);
  }

 private:
  absl::Duration Between(double from_s, double to_s) {
    return absl::Seconds(
        std::uniform_real_distribution<double>(from_s, to_s)(random_));
  }
  // Continues on the way what is due.
  void SleepUntil(absl::Time end) {
    while (!stopped_.empty() && stopped_.begin()->first <= end) {
      absl::SleepFor(stopped_.begin()->first - absl::Now());
      kill(stopped_.begin()->second, SIGCONT);
      stopped_.erase(stopped_.begin());
    }
    absl::SleepFor(end - absl::Now());
  }

  tools::Supervisor& workers_;
  std::mt19937 random_;
  std::vector<int> faults_;
  std::multimap<absl::Time, pid_t> stopped_;  // by the time to go on
};

TEST(StormTest, EveryStreamEndsRightOrWithTheDocumentedStatus) {
  const Storm storm = StormOfEnvironment();
  std::printf("storm: NACRE_STORM=%d,%d NACRE_STORM_SEED=%u\n", storm.kills,
              storm.stops, storm.seed);
  tools::Cluster::Options options = Service::Options(/*drafts=*/2);
  options.targets = 2;
  options.supervisor.max_backoff = absl::Milliseconds(200);
  options.more_args.coordinator = {"--worker-timeout=2s"};
  Service service(std::move(options));
  const std::vector<Tokens> expected = QuietRun(service, kKinds, kTokens);

  std::atomic<bool> over{false};
  std::atomic<int> num_right{0}, num_unavailable{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < kStreams; ++client) {
    clients.emplace_back([&, client] {
      // At least one more after the storm.
      for (int i = client, last = 0; last < 1; ++i) {
        if (over) ++last;
        const int kind = i % kKinds;
        const StreamOutcome outcome =
            RunStream(service, StreamRequest(kind, MethodOf(i), kTokens));
        if (outcome.status.ok()) {
          EXPECT_EQ(outcome.streamed, expected[kind]);
          ++num_right;
          continue;
        }
        // No equal target in time. What was said before is right.
        EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable)
            << outcome.status;
        ASSERT_LE(outcome.streamed.size(), expected[kind].size());
        EXPECT_TRUE(std::equal(outcome.streamed.begin(), outcome.streamed.end(),
                               expected[kind].begin()));
        ++num_unavailable;
        absl::SleepFor(absl::Milliseconds(100));
      }
    });
  }
  Weather weather(service.cluster().supervisor(), storm);
  weather.Run();
  over = true;
  for (std::thread& client : clients) client.join();
  std::printf("%d streams right, %d unavailable\n", num_right.load(),
              num_unavailable.load());
  EXPECT_GE(num_right, kStreams);

  EXPECT_TRUE(Service::Eventually([&] {
    const auto workers = service.Workers();
    return workers.size() == 4 &&
           std::all_of(workers.begin(), workers.end(),
                       [](const v1::WorkerInfo& w) { return w.ready(); });
  }));
  EXPECT_TRUE(service.KvReturnsToEmpty());
  ExpectAllMethods(service, 1, expected[1]);
}

}  // namespace
}  // namespace nacre::integration
