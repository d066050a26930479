// A network between hosts that fails as networks do: no FIN, no reset, the
// other end is just not heard any more. The processes are well; the tokens stay
// the same, and nothing is left.

#include "tests/integration/hosts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

using Link = NetworkHosts::Link;

constexpr int kTokens = 600;  // more than come while a link breaks

class WorkerHostsTest : public HostsTest {
 protected:
  // On 2 cores two engines, a test and a compiler may need a second to answer.
  void StartCoordinator(const std::string& failover_timeout = "30s") {
    HostsTest::StartCoordinator(
        {"--worker-timeout=2s", "--failover-timeout=" + failover_timeout});
  }

  // What to do while tokens come: break the link once there are some.
  std::function<void(size_t)> Breaking(Host host, const Link& link) {
    is_broken_ = false;
    return [this, host, link](size_t tokens) {
      if (tokens >= 30 && !is_broken_.exchange(true)) {
        network_->SetLink(host, link);
      }
    };
  }

  std::atomic<bool> is_broken_{false};
};

TEST_F(WorkerHostsTest, ASlowAndLossyNetworkSaysTheSame) {
  StartCoordinator();
  StartTarget(kTarget);
  const std::vector<Tokens> expected = QuietRun(*service_, 2, 40);
  StopWorkers();
  Link link = {.delay = absl::Milliseconds(20),
               .jitter = absl::Milliseconds(5)};
  network_->SetLink(kTarget, link);
  link.loss = 0.01;
  network_->SetLink(kDraft, link);
  StartTarget(kTarget);
  StartDraft();
  // Once the coordinator knows how long the way is it waits for drafts.
  EXPECT_TRUE(Service::Eventually([&] {
    const auto complete =
        service_->Generate(StreamRequest(0, v1::METHOD_SD, 20));
    return complete.ok() && complete->speculation().accepted() > 0;
  }));
  std::thread greedy([&] { ExpectAllMethods(*service_, 0, expected[0]); });
  ExpectAllMethods(*service_, 1, expected[1]);
  greedy.join();
}

TEST_F(WorkerHostsTest, AnUnreachableDraftCostsNoTokenAndIsUsedAgain) {
  StartCoordinator();
  StartTarget(kTarget);
  StartDraft();
  const std::vector<Tokens> expected = QuietRun(*service_, 2, kTokens);
  const std::vector<Link> links = {NetworkHosts::Cut(), {.hears = false}};
  for (int kind = 0; kind < 2; ++kind) {
    ExpectAllMethods(*service_, kind, expected[kind],
                     Breaking(kDraft, links[kind]));
    ASSERT_TRUE(BecomesLost(kDraft));
    const auto alone =
        service_->Generate(StreamRequest(0, v1::METHOD_ASYNC, 100));
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(alone->usage().completion_tokens(), 100u);
    EXPECT_EQ(alone->speculation().drafted(), 0u);
    // Fewer than tokens where the target has drafted from suffixes.
    EXPECT_GT(alone->speculation().rounds(), 0u);
    EXPECT_EQ(alone->speculation().degraded_rounds(),
              alone->speculation().rounds());
    network_->SetLink(kDraft, {});
    ASSERT_TRUE(BecomesReady(kDraft));
    const auto paired =
        service_->Generate(StreamRequest(0, v1::METHOD_ASYNC, 100));
    ASSERT_TRUE(paired.ok()) << paired.status();
    EXPECT_GT(paired->speculation().accepted(), 0u);
    EXPECT_EQ(Ids(*paired), Ids(*alone));
  }
  EXPECT_TRUE(service_->KvReturnsToEmpty());
}

TEST_F(WorkerHostsTest, AnUnreachableTargetsStreamsMoveToAnEqualOne) {
  StartCoordinator();
  StartTarget(kTarget);
  StartTarget(kOtherTarget);
  StartDraft();
  const std::vector<Tokens> expected = QuietRun(*service_, 2, kTokens);
  ExpectAllMethods(*service_, 1, expected[1],
                   Breaking(kTarget, {.speaks = false}));
  ASSERT_TRUE(BecomesLost(kTarget));
  network_->SetLink(kTarget, {});
  ASSERT_TRUE(BecomesReady(kTarget));
  EXPECT_TRUE(service_->KvReturnsToEmpty());
}

TEST_F(WorkerHostsTest, WithoutAnEqualTargetAStreamEndsAndItsTargetComesEmpty) {
  StartCoordinator(/*failover_timeout=*/"1s");
  // 1024 tokens: room for one stream.
  StartTarget(kTarget, {"--max-memory=6M"});
  const v1::GenerateRequest request = StreamRequest(1, v1::METHOD_AR, kTokens);
  for (const Host host : {kTarget, kCoordinator}) {
    // DEADLINE_EXCEEDED would say that the client was not told.
    const auto broken = Breaking(host, NetworkHosts::Cut());
    size_t tokens = 0;
    const auto complete = service_->client().Generate(
        request, absl::Seconds(30), [&](const v1::Chunk& chunk) {
          tokens += static_cast<size_t>(chunk.token_ids_size());
          broken(tokens);
        });
    EXPECT_TRUE(absl::IsUnavailable(complete.status())) << complete.status();
    network_->SetLink(host, {});
    ASSERT_TRUE(BecomesReady(kTarget));
    // It has given up the lost stream's KV, which this one needs.
    const StreamOutcome next = RunStream(*service_, request);
    EXPECT_TRUE(next.status.ok()) << next.status;
  }
}

TEST_F(WorkerHostsTest, AnUnreachableCoordinatorsStreamsGoOnWhenItIsBack) {
  StartCoordinator();
  StartTarget(kTarget);
  StartDraft();
  const std::vector<Tokens> expected = QuietRun(*service_, 2, kTokens);
  const auto broken = Breaking(kCoordinator, NetworkHosts::Cut());
  std::thread healer([&] {
    EXPECT_TRUE(Service::Eventually([&] { return is_broken_.load(); }));
    EXPECT_TRUE(BecomesLost(kTarget));
    EXPECT_TRUE(BecomesLost(kDraft));
    network_->SetLink(kCoordinator, {});
  });
  ExpectAllMethods(*service_, 1, expected[1], broken);
  healer.join();
  ASSERT_TRUE(BecomesReady(kDraft));
  EXPECT_TRUE(service_->KvReturnsToEmpty());
}

}  // namespace
}  // namespace nacre::integration
