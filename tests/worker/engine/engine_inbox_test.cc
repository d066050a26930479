#include "worker/engine/engine_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EngineInboxTest, TakesInOrderAndOnce) {
  EngineInbox<int> inbox;
  inbox.Push(1);
  inbox.Push(2);
  std::vector<int> items = {9};
  inbox.Take(&items);
  EXPECT_THAT(items, ElementsAre(1, 2));
  inbox.Take(&items);
  EXPECT_THAT(items, IsEmpty());
}

TEST(EngineInboxTest, WaitReturnsAtItsDeadline) {
  EngineInbox<int> inbox;
  for (const int64_t delay_ns : {-5, 0, 1000, 2'000'000}) {
    const int64_t deadline_ns = MonotonicNowNs() + delay_ns;
    inbox.Wait(deadline_ns);
    EXPECT_GE(MonotonicNowNs(), deadline_ns);
  }
}

TEST(EngineInboxTest, WaitReturnsWhenSomethingIsThereOrOnWake) {
  EngineInbox<int> inbox;
  inbox.Push(1);
  inbox.Wait(absl::nullopt);
  std::vector<int> items;
  inbox.Take(&items);
  inbox.Wake();
  inbox.Wait(absl::nullopt);
  inbox.Take(&items);
  EXPECT_THAT(items, IsEmpty());
}

// The engine may be reading its commands when Wake is called.
TEST(EngineInboxTest, AWakeOutlastsATake) {
  EngineInbox<int> inbox;
  inbox.Wake();
  std::vector<int> items;
  inbox.Take(&items);
  EXPECT_TRUE(inbox.HasItems());
  inbox.Wait(absl::nullopt);
  EXPECT_FALSE(inbox.HasItems());
}

TEST(EngineInboxTest, NothingIsLostBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kItems = 5000;
  EngineInbox<int> inbox;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&inbox, t] {
      for (int i = 0; i < kItems; ++i) {
        inbox.Push(t * kItems + i);
        if (i % 64 == 0) inbox.Wake();
      }
    });
  }
  std::vector<int> next(kThreads, 0);
  std::vector<int> items;
  for (int received = 0; received < kThreads * kItems;) {
    inbox.Wait(absl::nullopt);
    inbox.Take(&items);
    received += static_cast<int>(items.size());
    for (const int item : items) {
      ASSERT_EQ(item % kItems, next[static_cast<size_t>(item / kItems)]++);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nacre::worker
