// A network that breaks between the coordinator and a worker: cut, silent,
// slow. The processes are well; the tokens stay the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/files.h"
#include "tests/integration/streams.h"
#include "tests/testing/fault_proxy.h"
#include "tools/cluster/child_process.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

using Mode = ::nacre::testing::FaultProxy::Mode;
using ::nacre::testing::FaultProxy;

// A worker that reaches the coordinator, and is reached, through a proxy each.
class FarWorker {
 public:
  FarWorker(Service& service, const std::string& role, const std::string& model)
      : to_coordinator_([address = service.cluster().registry_address()] {
          return address;
        }),
        to_worker_([file = AddressFile()] {
          const auto content = ReadFile(file);
          return std::string(content.ok() ? absl::StripAsciiWhitespace(*content)
                                          : "");
        }) {
    auto process = tools::ChildProcess::Start(
        {.argv = {absl::StrCat(NACRE_BIN "/nacre-", role, "-worker"), "--model",
                  model, "--coordinator", to_coordinator_.address(),
                  "--advertise", to_worker_.address(), "--address-file",
                  AddressFile()},
         .log_file = ""});
    EXPECT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }

  const std::string& address() const { return to_worker_.address(); }

  void SetMode(Mode mode) {
    to_coordinator_.SetMode(mode);
    to_worker_.SetMode(mode);
  }
  void SetDelay(absl::Duration delay) {
    to_coordinator_.SetDelay(delay);
    to_worker_.SetDelay(delay);
  }
  void Cut() {
    to_coordinator_.Cut();
    to_worker_.Cut();
  }

 private:
  std::string AddressFile() const { return folder_.path() + "/address"; }

  tools::TemporaryFolder folder_;
  FaultProxy to_coordinator_;
  FaultProxy to_worker_;
  std::unique_ptr<tools::ChildProcess> process_;
};

class NetworkTest : public ::testing::Test {
 protected:
  static tools::Cluster::Options Options() {
    tools::Cluster::Options options = Service::Options(/*drafts=*/0);
    // One compute thread a worker: there are several beside the cluster's own.
    options.cpus = "0";
    options.more_args.coordinator = {"--worker-timeout=2s"};
    return options;
  }
  bool IsReady(const FarWorker& worker) {
    const auto workers = service_.Workers();
    return std::any_of(
        workers.begin(), workers.end(), [&](const v1::WorkerInfo& info) {
          return info.ready() && info.hello().address() == worker.address();
        });
  }
  bool BecomesReady(const FarWorker& worker) {
    return Service::Eventually([&] { return IsReady(worker); });
  }
  bool BecomesLost(const FarWorker& worker) {
    return Service::Eventually([&] { return !IsReady(worker); });
  }

  Service service_{Options()};
};

TEST_F(NetworkTest, ADraftBehindABrokenNetworkCostsNoToken) {
  const std::vector<Tokens> expected = QuietRun(service_, 2, 1000);
  FarWorker draft(service_, "draft", DraftModel());
  ASSERT_TRUE(BecomesReady(draft));
  std::atomic<bool> broken{false};
  ExpectAllMethods(service_, 1, expected[1], [&](size_t tokens) {
    if (tokens >= 30 && !broken.exchange(true)) draft.Cut();
  });
  ASSERT_TRUE(BecomesReady(draft));
  broken = false;
  ExpectAllMethods(service_, 0, expected[0], [&](size_t tokens) {
    if (tokens >= 30 && !broken.exchange(true)) draft.SetMode(Mode::kSilent);
  });
  ASSERT_TRUE(BecomesLost(draft));
  draft.SetMode(Mode::kForward);
  ASSERT_TRUE(BecomesReady(draft));
  ExpectAllMethods(service_, 0, expected[0]);
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

TEST_F(NetworkTest, ATargetBehindABrokenNetworkIsReplacedAndComesBack) {
  const std::vector<Tokens> expected = QuietRun(service_, 2, 1000);
  FarWorker target(service_, "target", TargetModel());
  ASSERT_TRUE(BecomesReady(target));
  for (const Mode mode : {Mode::kReset, Mode::kSilent}) {
    std::atomic<bool> broken{false};
    ExpectAllMethods(service_, 1, expected[1], [&](size_t tokens) {
      if (tokens >= 30 && !broken.exchange(true)) target.SetMode(mode);
    });
    ASSERT_TRUE(BecomesLost(target));
    target.SetMode(Mode::kForward);
    ASSERT_TRUE(BecomesReady(target));
  }
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

TEST_F(NetworkTest, ADistantDraftAndTargetSayTheSame) {
  const std::vector<Tokens> expected = QuietRun(service_, 2, 100);
  FarWorker target(service_, "target", TargetModel());
  FarWorker draft(service_, "draft", DraftModel());
  ASSERT_TRUE(BecomesReady(target));
  ASSERT_TRUE(BecomesReady(draft));
  target.SetDelay(absl::Milliseconds(3));
  draft.SetDelay(absl::Milliseconds(7));
  ExpectAllMethods(service_, 1, expected[1]);
  ExpectAllMethods(service_, 0, expected[0]);
}

}  // namespace
}  // namespace nacre::integration
