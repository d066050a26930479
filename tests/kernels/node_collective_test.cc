#include "kernels/node_collective.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/shared_memory_collective.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/node_network.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<float>;

// The ranks of all nodes, in order.
struct Nodes {
  Nodes(int nodes, int ranks) : network(nodes) {
    for (int node = 0; node < nodes; ++node) {
      for (auto& own : MakeNodeCollectives(ranks / nodes, network.link(node))) {
        collectives.push_back(std::move(own));
      }
    }
  }

  Collective& rank(int rank) const {
    return *collectives[static_cast<size_t>(rank)];
  }

  NodeNetwork network;
  std::vector<std::unique_ptr<Collective>> collectives;
};

// (nodes, ranks)
std::vector<std::pair<int, int>> Groups() {
  return {{2, 2}, {2, 4}, {2, 8}, {4, 4}, {4, 8}, {8, 8}};
}

// Of magnitudes far apart, so that other orders have other bits.
std::vector<Values> Parts(int ranks, size_t count) {
  std::vector<Values> parts;
  float magnitude = 1e-3f;
  for (int rank = 0; rank < ranks; ++rank, magnitude *= 7) {
    parts.push_back(
        RandomFloats(count, 100 + static_cast<uint32_t>(rank), magnitude));
  }
  return parts;
}

// Of each rank what it has then.
template <typename Ranks>
std::vector<Values> Sums(const Ranks& ranks, const std::vector<Values>& parts) {
  std::vector<Values> sums(parts.size(), Values(parts[0].size(), -1));
  OnEveryRank(static_cast<int>(parts.size()), [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    EXPECT_EQ(ranks[index]->rank(), rank);
    EXPECT_EQ(ranks[index]->ranks(), static_cast<int>(parts.size()));
    EXPECT_TRUE(ranks[index]
                    ->AllReduce(parts[index].data(), parts[index].size(),
                                sums[index].data())
                    .ok());
  });
  return sums;
}

TEST(NodeCollectiveTest, SumsHaveTheBitsOfOneProcess) {
  for (const auto& [nodes, ranks] : Groups()) {
    const Nodes group(nodes, ranks);
    for (const size_t count : {0u, 1u, 17u, 1000u, 9001u, 64u}) {
      const std::vector<Values> parts = Parts(ranks, count);
      EXPECT_EQ(Sums(group.collectives, parts),
                Sums(MakeSharedMemoryCollectives(ranks), parts))
          << nodes << " nodes, " << ranks << " ranks, " << count << " values";
    }
  }
}

TEST(NodeCollectiveTest, BroadcastSendsWhatRankZeroHas) {
  for (const auto& [nodes, ranks] : Groups()) {
    const Nodes group(nodes, ranks);
    const Values expected = RandomFloats(333, 1);
    std::vector<Values> values(static_cast<size_t>(ranks), Values(333));
    values[0] = expected;
    OnEveryRank(ranks, [&](int rank) {
      Values& own = values[static_cast<size_t>(rank)];
      EXPECT_TRUE(group.rank(rank).Broadcast(own.data(), own.size()).ok());
      EXPECT_TRUE(group.rank(rank).Broadcast(own.data(), 0).ok());
    });
    for (const Values& each : values) EXPECT_EQ(each, expected);
  }
}

TEST(NodeCollectiveTest, GatherLaysColumnsBesideEachOtherOnRankZero) {
  constexpr int kRows = 3, kCols = 5;
  for (const auto& [nodes, ranks] : Groups()) {
    const Nodes group(nodes, ranks);
    const int width = ranks * kCols;
    Values whole(static_cast<size_t>(kRows * width), -1);
    OnEveryRank(ranks, [&](int rank) {
      Values part;
      for (int i = 0; i < kRows * kCols; ++i) {
        part.push_back(
            static_cast<float>(100 * (i / kCols) + rank * kCols + i % kCols));
      }
      EXPECT_TRUE(group.rank(rank)
                      .Gather(part.data(), kRows, kCols,
                              rank == 0 ? whole.data() : nullptr)
                      .ok());
    });
    for (int i = 0; i < kRows * width; ++i) {
      ASSERT_EQ(whole[static_cast<size_t>(i)],
                static_cast<float>(100 * (i / width) + i % width));
    }
  }
}

TEST(NodeCollectiveTest, AllWaitForALateNode) {
  const Nodes group(2, 2);
  const Values ones(20, 1), twos(20, 2);
  Values first(20), second(20);
  std::atomic<bool> returned{false};
  std::thread waits([&] {
    EXPECT_TRUE(group.rank(0).AllReduce(ones.data(), 20, first.data()).ok());
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(returned);
  EXPECT_TRUE(group.rank(1).AllReduce(twos.data(), 20, second.data()).ok());
  waits.join();
  EXPECT_EQ(first, Values(20, 3));
  EXPECT_EQ(second, Values(20, 3));
}

// Also the ranks that do not speak to other nodes themselves.
// Ranks that meet on devices make no call that would fail.
TEST(NodeCollectiveTest, ALostNodeIsTheOutcomeOfRanksThatCallNothing) {
  const absl::Status reason = absl::UnavailableError("node 1 is lost");
  for (const bool aborts : {false, true}) {
    Nodes group(2, 4);
    EXPECT_EQ(group.rank(1).Outcome(), absl::OkStatus());
    group.network.Lose(reason);
    // What a rank says of it afterwards is no other reason.
    if (aborts) group.rank(1).Abort(absl::UnavailableError("rank 1: no more"));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(group.rank(rank).Outcome(), reason);
    }
  }
}

TEST(NodeCollectiveTest, ALostNodeEndsAllRanks) {
  Nodes group(2, 4);
  const absl::Status lost = absl::UnavailableError("node 1 is lost");
  std::vector<absl::Status> statuses(2);
  OnEveryRank(3, [&](int rank) {
    if (rank == 2) return group.network.Lose(lost);
    Values values(8, 1), sum(8);
    statuses[static_cast<size_t>(rank)] =
        group.rank(rank).AllReduce(values.data(), 8, sum.data());
  });
  EXPECT_EQ(statuses[0], lost);
  EXPECT_EQ(statuses[1], lost);
  Values values(4);
  EXPECT_EQ(group.rank(1).Broadcast(values.data(), 4), lost);
  EXPECT_EQ(group.rank(0).Gather(values.data(), 2, 2, nullptr), lost);
}

TEST(NodeCollectiveTest, ARankThatAbortsEndsAllNodes) {
  const Nodes group(4, 8);
  const absl::Status reason = absl::ResourceExhaustedError("no room on rank 5");
  std::vector<absl::Status> statuses(8, reason);
  OnEveryRank(8, [&](int rank) {
    if (rank == 5) return group.rank(5).Abort(reason);
    Values part(16, 1), sum(16);
    statuses[static_cast<size_t>(rank)] =
        group.rank(rank).AllReduce(part.data(), 16, sum.data());
  });
  EXPECT_THAT(statuses, ::testing::Each(reason));
}

TEST(NodeCollectiveTest, ANodeAtAnotherCallEndsThisOne) {
  for (const auto& [planted, said] :
       std::vector<std::pair<NodeCall, std::string>>{
           {{2, NodeCall::Kind::kSum, 8}, "call 2, a sum of 8 values"},
           {{1, NodeCall::Kind::kGather, 8}, "call 1, a gather of 8 values"},
           {{1, NodeCall::Kind::kBroadcast, 8}, "call 1, a broadcast of 8"},
           {{1, NodeCall::Kind{9}, 8}, "call 1, nothing known of 8 values"},
           {{1, NodeCall::Kind::kSum, 7}, "call 1, a sum of 7 values"}}) {
    Nodes group(2, 4);
    group.network.Plant(1, 0, planted, Values(planted.count, 1));
    std::vector<absl::Status> statuses(2);
    OnEveryRank(2, [&](int rank) {
      Values values(8, 1), sum(8);
      statuses[static_cast<size_t>(rank)] =
          group.rank(rank).AllReduce(values.data(), 8, sum.data());
    });
    EXPECT_EQ(statuses[0], statuses[1]);
    EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInternal);
    EXPECT_THAT(statuses[0].ToString(), HasSubstr("node 1 is at " + said));
    EXPECT_THAT(statuses[0].ToString(),
                HasSubstr("expected call 1, a sum of 8 values"));
  }
}

// The head is where a step ends: none may take it for one that went well.
TEST(NodeCollectiveTest, AGatherThatFailsDoesSoOnAllRanksOfTheNode) {
  Nodes group(2, 4);
  group.network.Plant(1, 0, {1, NodeCall::Kind::kSum, 4}, Values(4));
  std::vector<absl::Status> statuses(2);
  OnEveryRank(2, [&](int rank) {
    const Values part(2, 1);
    Values whole(8);
    statuses[static_cast<size_t>(rank)] =
        group.rank(rank).Gather(part.data(), 1, 2, whole.data());
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInternal);
  EXPECT_EQ(statuses[0], statuses[1]);
}

TEST(NodeCollectiveDeathTest, AreNoMoreThanSharesOfSums) {
  NodeNetwork network(4);
  EXPECT_DEATH(MakeNodeCollectives(4, network.link(0)), "too many ranks");
}

}  // namespace
}  // namespace nacre::kernels
