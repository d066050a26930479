// Clients whose hosts vanish: the coordinator finds out by itself and frees
// what they held.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/integration/hosts.h"

namespace nacre::integration {
namespace {

class ClientHostsTest : public HostsTest {
 protected:
  // One that shows tokens as they come, or with `flags` of its own.
  tools::ChildProcess* Generate(Host host,
                                const std::vector<std::string>& flags = {}) {
    std::vector<std::string> argv = {
        NACRE_BIN "/nacre",    "generate", "--address",
        Address(kCoordinator), "--prompt", "def main():",
        "--max-tokens",        "1900",     "--ignore-eos"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return Start(host, std::move(argv));
  }
  // As the coordinator counts them, and as the target does.
  bool TargetHolds(uint32_t sessions) {
    for (const v1::WorkerInfo& info : service_->Workers()) {
      if (info.hello().address() == Address(kTarget)) {
        return info.sessions() == sessions &&
               info.heartbeat().sessions() == sessions;
      }
    }
    return false;
  }
};

// A stream notices that it is not acknowledged, after 10 seconds; one that says
// nothing until its end notices an unanswered ping, after 30 at most. These
// are the defaults: keepalive has no flags.
TEST_F(ClientHostsTest, AVanishedClientsSessionIsCancelledAndItsKvFreed) {
  StartCoordinator({"--worker-timeout=10s"});
  StartTarget(kTarget);
  StartDraft();
  // A target runs at most 64 tokens ahead of the acknowledgement: at a round
  // trip of 4 seconds these answers take two minutes.
  network_->SetLink(kTarget, {.delay = absl::Seconds(2)});
  tools::ChildProcess* streaming = Generate(kClient);
  tools::ChildProcess* silent = Generate(kOtherClient, {"--json"});
  ASSERT_TRUE(Service::Eventually([&] { return TargetHolds(2); }));
  network_->SetLink(kClient, NetworkHosts::Cut());
  network_->SetLink(kOtherClient, NetworkHosts::Cut());
  EXPECT_TRUE(Service::Eventually([&] { return TargetHolds(0); }));
  network_->SetLink(kTarget, {});
  EXPECT_TRUE(service_->KvReturnsToEmpty());
  // They have noticed too.
  for (tools::ChildProcess* client : {streaming, silent}) {
    EXPECT_TRUE(client->WaitForEnd(absl::Minutes(1)));
    EXPECT_EQ(client->Poll(), "exit code 1");
  }
}

}  // namespace
}  // namespace nacre::integration
