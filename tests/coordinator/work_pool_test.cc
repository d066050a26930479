#include "coordinator/work_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;

TEST(WorkPoolTest, RunsTasksInOrder) {
  std::vector<int> order;
  {
    WorkPool pool({.threads = 1});
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(pool.TrySubmit(1, [&order, i] { order.push_back(i); }));
    }
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(WorkPoolTest, ThreadsRunSideBySide) {
  absl::Notification here[2];
  WorkPool pool({.threads = 2});
  for (int i = 0; i < 2; ++i) {
    pool.TrySubmit(1, [&here, i] {
      here[i].Notify();
      here[1 - i].WaitForNotification();
    });
  }
}

TEST(WorkPoolTest, AFullPoolRefuses) {
  absl::Notification go;
  std::atomic<int> ran{0};
  {
    WorkPool pool({.threads = 1, .max_tasks = 3, .max_bytes = 100});
    const auto task = [&] {
      go.WaitForNotification();
      ++ran;
    };
    EXPECT_TRUE(pool.TrySubmit(40, task));
    EXPECT_FALSE(pool.TrySubmit(61, task));
    EXPECT_TRUE(pool.TrySubmit(60, task));
    EXPECT_TRUE(pool.TrySubmit(0, task));
    EXPECT_FALSE(pool.TrySubmit(0, task));
    go.Notify();
  }
  EXPECT_EQ(ran, 3);
}

TEST(WorkPoolTest, WhatHasRunLeavesRoom) {
  WorkPool pool({.threads = 1, .max_tasks = 1, .max_bytes = 10});
  for (int i = 0; i < 100; ++i) {
    absl::Notification done;
    // Larger than the limit, but alone.
    while (!pool.TrySubmit(1000, [&done] { done.Notify(); })) {
    }
    done.WaitForNotification();
  }
}

TEST(WorkPoolTest, WhatATaskOwnsGoesBeforeItsPlaceIsFree) {
  std::weak_ptr<int> weak;
  WorkPool pool({.threads = 1, .max_tasks = 1});
  auto owned = std::make_shared<int>(7);
  weak = owned;
  EXPECT_TRUE(pool.TrySubmit(1, [owned = std::move(owned)] {}));
  while (!pool.TrySubmit(1, [] {})) {
  }
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace nacre::coordinator
