// A running service for tests, each process on a host of its own
// (tests/testing/network_hosts.h), and a client on the coordinator's.

#ifndef TESTS_INTEGRATION_HOSTS_H_
#define TESTS_INTEGRATION_HOSTS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/network_hosts.h"
#include "tools/cluster/child_process.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {

using ::nacre::testing::NetworkHosts;

class HostsTest : public ::testing::Test {
 protected:
  enum Host {
    kCoordinator,
    kTarget,
    kOtherTarget,
    kDraft,
    kClient,
    kOtherClient,
    kNumHosts
  };

  // One network for all tests: gRPC's threads live as long as this process and
  // stay on the host where they began. That is the coordinator's, so that what
  // the tests ask it does not depend on the links.
  static void SetUpTestSuite() {
    auto network = NetworkHosts::Create(kNumHosts);
    skip_reason_ = network.status().ToString();
    if (!network.ok()) return;
    network_ = *std::move(network);
    visit_ = std::make_unique<NetworkHosts::Visit>(*network_, kCoordinator);
  }
  static void TearDownTestSuite() {
    visit_.reset();
    network_.reset();
  }
  void SetUp() override {
    if (network_ == nullptr) {
      GTEST_SKIP() << "no hosts on this machine: " << skip_reason_;
    }
    for (int host = 0; host < kNumHosts; ++host) network_->SetLink(host, {});
  }

  // All ports of a host are free, and no other's.
  static std::string Address(Host host) {
    return network_->address(host) + ":50050";
  }
  static std::string RegistryAddress() {
    return network_->address(kCoordinator) + ":50051";
  }

  void StartCoordinator(const std::vector<std::string>& flags) {
    const std::string admin_address = "127.0.0.1:50052";
    const std::string address_file = folder_.path() + "/address";
    std::vector<std::string> argv = {NACRE_BIN "/nacre-coordinator",
                                     "--tokenizer",
                                     TargetModel(),
                                     "--listen",
                                     Address(kCoordinator),
                                     "--registry-listen",
                                     RegistryAddress(),
                                     "--admin-listen",
                                     admin_address,
                                     "--address-file",
                                     address_file};
    argv.insert(argv.end(), flags.begin(), flags.end());
    Start(kCoordinator, std::move(argv));
    ASSERT_TRUE(
        Service::Eventually([&] { return ReadFile(address_file).ok(); }));
    service_ = std::make_unique<Service>(Address(kCoordinator), admin_address);
  }

  void StartTarget(Host host, const std::vector<std::string>& flags = {}) {
    StartWorker("target", TargetModel(), host, flags);
  }
  void StartDraft() { StartWorker("draft", DraftModel(), kDraft, {}); }

  // All but the coordinator, with the processes that a test has started.
  void StopWorkers() {
    processes_.resize(1);
    ASSERT_TRUE(
        Service::Eventually([&] { return service_->Workers().empty(); }));
  }

  tools::ChildProcess* Start(Host host, std::vector<std::string> argv) {
    const NetworkHosts::Visit visit(*network_, host);
    auto process =
        tools::ChildProcess::Start({.argv = std::move(argv), .log_file = ""});
    EXPECT_TRUE(process.ok()) << process.status();
    processes_.push_back(*std::move(process));
    return processes_.back().get();
  }

  bool BecomesReady(Host host) {
    return Service::Eventually([&] { return IsReady(host); });
  }
  bool BecomesLost(Host host) {
    return Service::Eventually([&] { return !IsReady(host); });
  }

  static std::unique_ptr<NetworkHosts> network_;  // null: skip

  std::unique_ptr<Service> service_;

 private:
  void StartWorker(const std::string& role, const std::string& model, Host host,
                   const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {
        absl::StrCat(NACRE_BIN "/nacre-", role, "-worker"),
        "--model",
        model,
        "--coordinator",
        RegistryAddress(),
        "--listen",
        Address(host),
        "--cpus",
        host == kTarget ? "0" : "1"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    Start(host, std::move(argv));
    ASSERT_TRUE(BecomesReady(host));
  }
  bool IsReady(Host host) {
    for (const v1::WorkerInfo& info : service_->Workers()) {
      if (info.hello().address() == Address(host)) return info.ready();
    }
    return false;
  }

  static std::unique_ptr<NetworkHosts::Visit> visit_;
  static std::string skip_reason_;

  const tools::TemporaryFolder folder_;
  std::vector<std::unique_ptr<tools::ChildProcess>> processes_;
};

inline std::unique_ptr<NetworkHosts> HostsTest::network_;
inline std::unique_ptr<NetworkHosts::Visit> HostsTest::visit_;
inline std::string HostsTest::skip_reason_;

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_HOSTS_H_
