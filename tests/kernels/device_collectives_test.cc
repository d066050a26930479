// Nodes that agree on what their ranks meet by, each a thread here, on emulated
// devices with the libnccl of the tests.

#include "kernels/device_collectives.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/node_collective.h"
#include "kernels/shared_memory_collective.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/load_nccl_of_tests.h"
#include "tests/kernels/node_network.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A process, with a rank on each of its devices.
struct Node {
  Node(NodeLink* link, const std::string& transport, std::vector<int> devices,
       std::chrono::milliseconds limit)
      : hosts(MakeNodeCollectives(static_cast<int>(devices.size()), link)) {
    BackendOptions options;
    options.kind = "cuda";
    options.rank_transport = transport;
    for (const int device : devices) {
      options.device = device;
      backends.push_back(*CreateBackend(options));
    }
    options.devices = std::move(devices);
    DeviceCollectiveOptions nodes;
    nodes.link = link;
    nodes.nccl.limit = limit;
    made = MakeDeviceCollectives(options, hosts, backends, nodes);
  }

  // What they meet by, or why they do not.
  std::string Said() const {
    if (!made.ok()) return std::string(made.status().message());
    return made->of_ranks.back()->description() +
           (made->why_host.empty() ? "" : "; " + made->why_host);
  }

  std::vector<std::unique_ptr<Collective>> hosts;
  std::vector<std::unique_ptr<Backend>> backends;
  absl::StatusOr<DeviceCollectives> made;
};

using Devices = std::vector<std::vector<int>>;  // of each node

class DeviceCollectivesTest : public ::testing::Test {
 protected:
  DeviceCollectivesTest() {
    cuda::emulation::ResetDevice();
    cuda::emulation::settings.devices = kMostRanks;
  }
  ~DeviceCollectivesTest() override {
    EXPECT_EQ(nccl_->comms, 0);
    cuda::emulation::ResetDevice();
  }

  std::vector<std::unique_ptr<Node>> Make(const std::string& transport,
                                          const Devices& devices,
                                          NodeNetwork* network) const {
    std::vector<std::unique_ptr<Node>> nodes(devices.size());
    OnEveryRank(static_cast<int>(devices.size()), [&](int number) {
      const auto node = static_cast<size_t>(number);
      nodes[node] = std::make_unique<Node>(network->link(number), transport,
                                           devices[node], limit_);
    });
    return nodes;
  }
  // Expects all nodes to say it.
  void ExpectSaid(const std::string& transport, const Devices& devices,
                  const std::string& said, bool is_encrypted = false) const {
    NodeNetwork network(static_cast<int>(devices.size()), is_encrypted);
    for (const auto& node : Make(transport, devices, &network)) {
      EXPECT_EQ(node->Said(), said);
    }
  }

  cuda::NcclLibraryState* const nccl_ = cuda::LoadNcclOfTests();
  std::chrono::milliseconds limit_ = std::chrono::minutes(10);
};

TEST_F(DeviceCollectivesTest, NodesMeetByNccl) {
  for (const char* transport : {"auto", "nccl"}) {
    ExpectSaid(transport, {{0}, {1}}, "sums by NCCL");
    ExpectSaid(transport, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, "sums by NCCL");
    EXPECT_EQ(nccl_->nranks, 8);
  }
  ExpectSaid("host", {{0}, {1}},
             "sums in host memory; --tensor-parallel-transport host");
}

TEST_F(DeviceCollectivesTest, WhatOneNodeLacksIsSaidByAll) {
  const Devices devices = {{0, 1}, {2, 2}};
  const std::string lacks =
      "node 1: two ranks have device 2, NCCL needs one for each";
  ExpectSaid("auto", devices, "sums in host memory; " + lacks);
  ExpectSaid("nccl", devices, "--tensor-parallel-transport nccl: " + lacks);
  NodeNetwork network(2);
  const auto nodes = Make("nccl", devices, &network);
  EXPECT_EQ(nodes[0]->made.status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(nodes[1]->made.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DeviceCollectivesTest, ANodeThatMakesNoIdIsNamed) {
  nccl_->failing_call = 0;
  ExpectSaid("auto", {{0}, {1}},
             "sums in host memory; node 0: ncclGetUniqueId: other error");
}

// The others wait for it as long as ranks wait for each other.
TEST_F(DeviceCollectivesTest, ARankThatCannotJoinEndsNcclForAll) {
  limit_ = std::chrono::milliseconds(300);
  nccl_->failing_call = 1;
  NodeNetwork network(2);
  const auto nodes = Make("auto", {{0}, {1}}, &network);
  EXPECT_EQ(nodes[0]->Said(), nodes[1]->Said());
  EXPECT_THAT(nodes[0]->Said(), StartsWith("sums in host memory; node "));
  EXPECT_EQ(network.link(0)->failure(), absl::OkStatus());
}

// Where it is asked for they need not wait.
TEST_F(DeviceCollectivesTest, IfItIsAskedForARankThatCannotJoinEndsAllNodes) {
  nccl_->failing_call = 1;
  NodeNetwork network(2);
  const auto nodes = Make("nccl", {{0}, {1}}, &network);
  EXPECT_EQ(nodes[0]->made.status(), network.link(1)->failure());
  EXPECT_EQ(nodes[1]->made.status(), network.link(1)->failure());
  EXPECT_THAT(nodes[0]->Said(),
              AllOf(StartsWith("rank "),
                    HasSubstr(": ncclCommInitRankConfig: other error")));
}

TEST_F(DeviceCollectivesTest, ANodeThatIsLostEndsTheWaitForIt) {
  for (const char* transport : {"auto", "nccl"}) {
    nccl_->holds_joins = true;
    NodeNetwork network(2);
    const absl::Status reason = absl::UnavailableError("node 1 is lost");
    std::thread loses([&] { network.Lose(reason); });
    for (const auto& node : Make(transport, {{0}, {1}}, &network)) {
      EXPECT_EQ(node->made.status(), reason);
    }
    loses.join();
  }
}

// NCCL would send in the clear what TLS protects.
TEST_F(DeviceCollectivesTest, NodesWithTlsMeetByNcclOnlyIfTheyAreTold) {
  ExpectSaid("auto", {{0}, {1}},
             "sums in host memory; between nodes it does not encrypt, as TLS "
             "does",
             /*is_encrypted=*/true);
  ExpectSaid("nccl", {{0}, {1}}, "sums by NCCL", /*is_encrypted=*/true);
}

}  // namespace
}  // namespace nacre::kernels
