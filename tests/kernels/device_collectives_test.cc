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
using ::testing::MatchesRegex;
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

// So many calls of a rank, and a wait for its device: what comes of them.
absl::Status Calls(Node* node, int member, int count) {
  const auto at = static_cast<size_t>(member);
  Backend* const backend = node->backends[at].get();
  Collective* const collective = node->made->of_ranks[at].get();
  backend->BindComputeThread();
  const auto values = *backend->Allocate(3 * sizeof(float));
  for (int i = 0; i < count; ++i) {
    absl::Status status = collective->Broadcast(values->f32(), 3);
    status.Update(backend->Synchronize());
    if (!status.ok()) return status;
  }
  return collective->Outcome();
}

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

// Each node names the same: what node 0 has heard of the others.
TEST_F(DeviceCollectivesTest, ARankThatHangsIsNamedByNode0) {
  for (const int hangs : {0, 2}) {
    limit_ = std::chrono::milliseconds(400);
    NodeNetwork network(2);
    const auto nodes = Make("nccl", {{0, 1}, {2, 3}}, &network);
    ASSERT_EQ(nodes[0]->Said(), "sums by NCCL");
    OnEveryRank(4, [&](int rank) {
      Node& node = *nodes[static_cast<size_t>(rank / 2)];
      EXPECT_TRUE(Calls(&node, rank % 2, 2).ok());
    });
    std::vector<std::string> said(4);
    OnEveryRank(4, [&](int rank) {
      Node& node = *nodes[static_cast<size_t>(rank / 2)];
      if (rank == hangs) return;
      const absl::Status status = Calls(&node, rank % 2, 1);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      said[static_cast<size_t>(rank)] = std::string(status.message());
    });
    said.erase(said.begin() + hangs);
    EXPECT_EQ(said[1], said[0]);
    EXPECT_EQ(said[2], said[0]);
    EXPECT_THAT(
        said[0],
        MatchesRegex(hangs == 0
                         ? "ranks 1, 2, 3 have waited for .* ms in call 3, a "
                           "broadcast of 12 bytes, for rank 0 of node 0, which "
                           "has made 2"
                         : "ranks 0, 1, 3 have waited for .* ms in call 3, a "
                           "broadcast of 12 bytes, for rank 2 of node 1, which "
                           "has made 2"));
  }
}

// A process that stands still, or that nothing comes of.
TEST_F(DeviceCollectivesTest, ANodeThatSaysNothingIsNamed) {
  limit_ = std::chrono::milliseconds(400);
  for (const int calls : {0, 1}) {
    NodeNetwork network(2);
    network.Silence(1);
    const auto nodes = Make("nccl", {{0}, {1}}, &network);
    ASSERT_EQ(nodes[0]->Said(), "sums by NCCL");
    const absl::Status status =
        Calls(nodes[static_cast<size_t>(calls)].get(), 0, 1);
    EXPECT_THAT(
        std::string(status.message()),
        MatchesRegex(calls == 0
                         ? "rank 0 has waited for .* ms in call 1, a broadcast "
                           "of 12 bytes; node 1 has said nothing"
                         : "rank 1 has waited for .* ms in call 1, a broadcast "
                           "of 12 bytes; node 0 has not said for whom"));
  }
}

TEST_F(DeviceCollectivesTest, NodesWithOtherVersionsOfNcclAreRefused) {
  static thread_local bool is_other;
  nccl_->version_here = [] {
    return is_other ? 30001 : NCCL_VERSION(2, 28, 9);
  };
  const std::string lacks =
      "node 1 has NCCL 3.0.1, node 0 has 2.28.9: both must be the same";
  for (const char* transport : {"auto", "nccl"}) {
    NodeNetwork network(2);
    std::vector<std::unique_ptr<Node>> nodes(2);
    OnEveryRank(2, [&](int number) {
      is_other = number == 1;
      nodes[static_cast<size_t>(number)] = std::make_unique<Node>(
          network.link(number), transport, std::vector<int>{number}, limit_);
    });
    for (const auto& node : nodes) {
      EXPECT_EQ(node->Said(),
                transport == std::string("auto")
                    ? "sums in host memory; " + lacks
                    : "--tensor-parallel-transport nccl: " + lacks);
    }
  }
  EXPECT_EQ(nccl_->comms, 0);
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
