#include "kernels/shared_memory_collective.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

constexpr int kShards = 8;

using Values = std::vector<float>;

// Of eight magnitudes, so that other orders have other bits.
std::vector<Values> ShardValues(size_t count) {
  std::vector<Values> shards;
  float magnitude = 1e-3f;
  for (uint32_t i = 0; i < kShards; ++i, magnitude *= 7) {
    shards.push_back(RandomFloats(count, 100 + i, magnitude));
  }
  return shards;
}

// By the definition: neighbours, then their neighbours.
Values PairSum(const std::vector<Values>& shards, size_t first, size_t count) {
  if (count == 1) return shards[first];
  Values sum = PairSum(shards, first, count / 2);
  const Values right = PairSum(shards, first + count / 2, count / 2);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

TEST(SharedMemoryCollectiveTest, AllReduceHasTheSameBitsForAnyNumberOfRanks) {
  for (const size_t count : {0u, 1u, 15u, 16u, 17u, 129u, 1000u, 9001u}) {
    const std::vector<Values> shards = ShardValues(count);
    const Values expected = PairSum(shards, 0, kShards);
    for (const int ranks : {1, 2, 4, 8}) {
      const auto collectives = MakeSharedMemoryCollectives(ranks);
      const size_t each = kShards / static_cast<size_t>(ranks);
      std::vector<Values> sums(static_cast<size_t>(ranks), Values(count, -1));
      OnEveryRank(ranks, [&](int rank) {
        const auto index = static_cast<size_t>(rank);
        EXPECT_EQ(collectives[index]->rank(), rank);
        EXPECT_EQ(collectives[index]->ranks(), ranks);
        const Values part = PairSum(shards, index * each, each);
        EXPECT_TRUE(collectives[index]
                        ->AllReduce(part.data(), count, sums[index].data())
                        .ok());
      });
      for (const Values& sum : sums) {
        EXPECT_EQ(sum, expected) << ranks << " ranks, " << count << " values";
      }
    }
  }
}

TEST(SharedMemoryCollectiveTest, BroadcastSendsWhatRankZeroHas) {
  const Values expected = RandomFloats(333, 1);
  const auto collectives = MakeSharedMemoryCollectives(4);
  std::vector<Values> values(4, Values(expected.size()));
  values[0] = expected;
  OnEveryRank(4, [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    EXPECT_TRUE(collectives[index]
                    ->Broadcast(values[index].data(), expected.size())
                    .ok());
  });
  for (const Values& each : values) EXPECT_EQ(each, expected);
}

TEST(SharedMemoryCollectiveTest, GatherLaysColumnsBesideEachOtherOnRankZero) {
  constexpr int kRanks = 4, kRows = 3, kCols = 5;
  const auto collectives = MakeSharedMemoryCollectives(kRanks);
  Values whole(static_cast<size_t>(kRows) * kRanks * kCols, -1);
  OnEveryRank(kRanks, [&](int rank) {
    Values part;
    for (int row = 0; row < kRows; ++row) {
      for (int col = 0; col < kCols; ++col) {
        part.push_back(static_cast<float>(100 * row + rank * kCols + col));
      }
    }
    EXPECT_TRUE(collectives[static_cast<size_t>(rank)]
                    ->Gather(part.data(), kRows, kCols,
                             rank == 0 ? whole.data() : nullptr)
                    .ok());
  });
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kRanks * kCols; ++col) {
      EXPECT_EQ(whole[static_cast<size_t>(row * kRanks * kCols + col)],
                static_cast<float>(100 * row + col));
    }
  }
}

// The same buffers again and again: a rank that went on too early would be seen
// in a sum, and by a sanitizer of threads.
TEST(SharedMemoryCollectiveTest, NoRankGoesOnBeforeAllHaveRead) {
  constexpr int kRanks = 4, kRounds = 200;
  constexpr size_t kCount = 70;
  const auto collectives = MakeSharedMemoryCollectives(kRanks);
  OnEveryRank(kRanks, [&](int rank) {
    Collective& own = *collectives[static_cast<size_t>(rank)];
    Values part(kCount), sum(kCount);
    for (int round = 0; round < kRounds; ++round) {
      // One rank is late each time.
      if (round % kRanks == rank) std::this_thread::yield();
      part.assign(kCount, static_cast<float>(round * (rank + 1)));
      ASSERT_TRUE(own.AllReduce(part.data(), kCount, sum.data()).ok());
      ASSERT_EQ(sum, Values(kCount, static_cast<float>(round * 10)));
    }
  });
}

TEST(SharedMemoryCollectiveTest, AllRanksWaitForALateOne) {
  const auto collectives = MakeSharedMemoryCollectives(2);
  const Values ones(20, 1), twos(20, 2);
  Values first(20), second(20);
  std::atomic<bool> comes{false};
  std::atomic<bool> returned{false};
  std::thread waits([&] {
    comes = true;
    comes.notify_one();
    EXPECT_TRUE(collectives[0]->AllReduce(ones.data(), 20, first.data()).ok());
    returned = true;
  });
  comes.wait(false);
  EXPECT_FALSE(returned);
  EXPECT_TRUE(collectives[1]->AllReduce(twos.data(), 20, second.data()).ok());
  waits.join();
  EXPECT_EQ(first, Values(20, 3));
  EXPECT_EQ(second, Values(20, 3));
}

TEST(SharedMemoryCollectiveTest, ARankThatAbortsWakesTheOthersForGood) {
  constexpr int kRanks = 8;
  const auto collectives = MakeSharedMemoryCollectives(kRanks);
  const absl::Status reason = absl::ResourceExhaustedError("no room on rank 3");
  std::vector<absl::Status> statuses(kRanks);
  std::vector<Values> sums(kRanks, Values(16));
  const Values part(16, 1);
  OnEveryRank(kRanks, [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank == 3) return collectives[index]->Abort(reason);
    statuses[index] =
        collectives[index]->AllReduce(part.data(), 16, sums[index].data());
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != 3) {
      EXPECT_EQ(statuses[static_cast<size_t>(rank)], reason);
    }
  }
  // Every later call returns the first reason at once.
  collectives[5]->Abort(absl::InternalError("later"));
  Values values(4);
  EXPECT_EQ(collectives[0]->Broadcast(values.data(), 4), reason);
  EXPECT_EQ(collectives[3]->Gather(values.data(), 2, 2, nullptr), reason);
}

TEST(SharedMemoryCollectiveTest, ARankThatEndsWakesTheOthers) {
  auto collectives = MakeSharedMemoryCollectives(2);
  std::unique_ptr<Collective> lost = std::move(collectives[1]);
  Values values(4);
  std::thread waits([&] {
    EXPECT_EQ(collectives[0]->Broadcast(values.data(), 4),
              absl::AbortedError("rank 1 ended"));
  });
  lost.reset();
  waits.join();
}

TEST(SharedMemoryCollectiveDeathTest, RanksAreAPowerOfTwo) {
  EXPECT_DEATH(MakeSharedMemoryCollectives(3), "no power of two");
  EXPECT_DEATH(MakeSharedMemoryCollectives(16), "no power of two");
  EXPECT_DEATH(MakeSharedMemoryCollectives(0), "no power of two");
}

}  // namespace
}  // namespace nacre::kernels
