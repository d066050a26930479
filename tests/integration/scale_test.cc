// More streams at once than can run: each says what it says alone, those that
// wait take little memory, and probes are answered meanwhile.
//
// NACRE_SCALE_STREAMS (label slow: 2000) is how many; there the memory and the
// probes count, too.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/integration/memory.h"
#include "tests/integration/probes.h"
#include "tests/integration/service_fixture.h"
#include "tests/integration/stream_crowd.h"
#include "tests/integration/streams.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

constexpr int kKinds = 8;
constexpr int kTokens = 32;
constexpr int kStreamsPerChannel = 50;
constexpr int64_t kMostBytesPerWaiting = 64 << 10;

class ScaleTest : public ::testing::Test {
 protected:
  ScaleTest() {
    const char* text = std::getenv("NACRE_SCALE_STREAMS");
    if (text == nullptr) return;
    is_measured_ = absl::SimpleAtoi(text, &num_streams_) && num_streams_ > 100;
    EXPECT_TRUE(is_measured_)
        << "NACRE_SCALE_STREAMS is a number over 100, not " << text;
  }

  tools::Cluster::Options Options() const {
    tools::Cluster::Options options = Service::Options();
    options.metrics_port = 0;
    options.log_dir = folder_.path();  // they log every request
    options.more_args.coordinator = {absl::StrCat("--max-queue=", num_streams_),
                                     "--max-running=64", "--queue-timeout=10m"};
    return options;
  }

  // Starts them all, waits for their ends and compares them with `expected`.
  // The most memory that the coordinator had for each that waited.
  int64_t Run(Service& service, int num_streams,
              const std::vector<Tokens>& expected) {
    const pid_t pid = service.cluster().supervisor().PidOf("coordinator");
    const int64_t before = ResidentBytes(pid);
    StreamCrowd crowd(service.cluster().address(),
                      (num_streams - 1) / kStreamsPerChannel + 1);
    for (int i = 0; i < num_streams; ++i) {
      crowd.Start(StreamRequest(i % kKinds, MethodOf(i / kKinds), kTokens));
    }
    uint32_t waiting = 0, most_waiting = 0;
    int64_t bytes = 0;  // when most waited
    do {
      absl::SleepFor(absl::Milliseconds(20));
      waiting = service.ServerInfo().queued_requests();
      if (waiting <= most_waiting) continue;
      most_waiting = waiting;
      bytes = ResidentBytes(pid) - before;
    } while (crowd.num_ended() < num_streams && waiting >= most_waiting / 2);
    EXPECT_TRUE(crowd.AwaitEnded(num_streams));
    int num_right = 0;
    for (int i = 0; i < num_streams; ++i) {
      const StreamOutcome& outcome = crowd.outcome(i);
      EXPECT_TRUE(outcome.status.ok())
          << "stream " << i << ": " << outcome.status;
      num_right += outcome.streamed == expected[i % kKinds];
    }
    EXPECT_EQ(num_right, num_streams);
    EXPECT_GT(most_waiting, 0u);
    std::printf("%u waited with %lld KiB more at the coordinator\n",
                most_waiting, static_cast<long long>(bytes >> 10));
    return bytes / std::max(1u, most_waiting);
  }

  int num_streams_ = 300;
  bool is_measured_ = false;
  const tools::TemporaryFolder folder_;
};

TEST_F(ScaleTest, EachOfManyStreamsAtOnceSaysWhatItSaysAlone) {
  Service service(Options());
  const std::vector<Tokens> expected = QuietRun(service, kKinds, kTokens);
  if (is_measured_) Run(service, /*num_streams=*/100, expected);  // warms up
  // The limit of a probe in deploy/ is three times as long.
  Probes probes(service.cluster().metrics_address(),
                service.cluster().address(), /*patience=*/absl::Seconds(1),
                /*period=*/absl::Milliseconds(200));
  const int64_t bytes_per_waiting = Run(service, num_streams_, expected);
  for (const Probes::Outcome& outcome : probes.Stop()) {
    std::printf("%s\n", outcome.ToString().c_str());
    EXPECT_GT(outcome.count, 0);
    if (!is_measured_) continue;
    EXPECT_EQ(outcome.failed, 0) << outcome.ToString();
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
  if (is_measured_) {
    EXPECT_LE(bytes_per_waiting, kMostBytesPerWaiting);
  }
}

}  // namespace
}  // namespace nacre::integration
