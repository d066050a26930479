#include "worker/engine/time_partition.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace nacre::worker {
namespace {

int64_t Sum(const TimePartition::Totals& totals) {
  return std::accumulate(totals.by_state_ns.begin(), totals.by_state_ns.end(),
                         int64_t{0});
}

TEST(TimePartitionTest, EveryNanosecondBelongsToOneState) {
  std::mt19937_64 random(1);
  TimePartition partition(1000);
  int64_t now = 1000;
  for (int i = 0; i < 1000; ++i) {
    now += static_cast<int64_t>(random() % 50);
    partition.Enter(static_cast<WorkerState>(random() % kNumWorkerStates), now);
    const TimePartition::Totals totals = partition.At(now + 7);
    ASSERT_EQ(totals.elapsed_ns, now + 7 - 1000);
    ASSERT_EQ(Sum(totals), totals.elapsed_ns);
  }
}

TEST(TimePartitionTest, TimeBelongsToTheStateThatWasEntered) {
  TimePartition partition(10);
  partition.Enter(WorkerState::kPrefill, 15);
  partition.Enter(WorkerState::kVerify, 25);
  partition.Enter(WorkerState::kVerify, 30);
  const TimePartition::Totals totals = partition.At(50);
  EXPECT_EQ(totals[WorkerState::kNoWork], 5);
  EXPECT_EQ(totals[WorkerState::kPrefill], 10);
  EXPECT_EQ(totals[WorkerState::kVerify], 25);
}

TEST(TimePartitionTest, AClockThatStepsBackCountsAsOneThatStoodStill) {
  TimePartition partition(100);
  partition.Enter(WorkerState::kDraft, 90);
  EXPECT_EQ(partition.At(80).elapsed_ns, 0);
  EXPECT_EQ(partition.At(130)[WorkerState::kDraft], 30);
}

}  // namespace
}  // namespace nacre::worker
