#include "coordinator/dispatch/work_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
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

TEST(WorkPoolTest, ATaskLargerThanAllRoomIsTakenAlone) {
  WorkPool pool({.threads = 1, .max_bytes = 10});
  EXPECT_TRUE(pool.TrySubmit(1000, [] {}));
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

// A pool of one thread that is busy until told otherwise.
class BusyWorkPoolTest : public ::testing::Test {
 protected:
  void Occupy(WorkPool& pool) {
    ASSERT_TRUE(pool.TrySubmit({.client = "busy", .bytes = 1, .run = [this] {
                                  begun_.Notify();
                                  go_.WaitForNotification();
                                }}));
    begun_.WaitForNotification();
  }
  // Its name goes to ran_ or refused_.
  WorkPool::Task Task(const std::string& client, const std::string& name,
                      int64_t bytes = 1, const void* owner = nullptr) {
    return {client, bytes, [this, name] { ran_.push_back(name); },
            [this, name] { refused_.push_back(name); }, owner};
  }

  absl::Notification begun_;
  absl::Notification go_;
  std::vector<std::string> ran_;  // by the pool's thread, read after its end
  std::vector<std::string> refused_;
};

TEST_F(BusyWorkPoolTest, ClientsTakeTurns) {
  {
    WorkPool pool({.threads = 1});
    Occupy(pool);
    for (const char* name : {"a1", "a2", "a3", "a4"}) {
      EXPECT_TRUE(pool.TrySubmit(Task("a", name)));
    }
    EXPECT_TRUE(pool.TrySubmit(Task("b", "b1")));
    EXPECT_TRUE(pool.TrySubmit(Task("c", "c1")));
    EXPECT_TRUE(pool.TrySubmit(Task("b", "b2")));
    go_.Notify();
  }
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3", "a4"));
}

TEST_F(BusyWorkPoolTest, WhoHasMostInAFullPoolMakesRoom) {
  {
    WorkPool pool({.threads = 1, .max_tasks = 4});
    Occupy(pool);
    for (const char* name : {"a1", "a2", "a3"}) {
      EXPECT_TRUE(pool.TrySubmit(Task("a", name)));
    }
    EXPECT_FALSE(pool.TrySubmit(Task("a", "a4")));
    EXPECT_TRUE(pool.TrySubmit(Task("b", "b1")));
    EXPECT_THAT(refused_, ElementsAre("a3"));
    // It would have as much as the one that has most.
    EXPECT_FALSE(pool.TrySubmit(Task("b", "b2")));
    EXPECT_THAT(refused_, ElementsAre("a3"));
    go_.Notify();
  }
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "a2"));
}

TEST_F(BusyWorkPoolTest, BytesCountAsTasksDo) {
  {
    WorkPool pool({.threads = 1, .max_bytes = 101});
    Occupy(pool);
    EXPECT_TRUE(pool.TrySubmit(Task("a", "a1", 50)));
    EXPECT_TRUE(pool.TrySubmit(Task("a", "a2", 50)));
    for (const char* name : {"b1", "b2", "b3"}) {
      EXPECT_TRUE(pool.TrySubmit(Task("b", name, 10)));
    }
    EXPECT_THAT(refused_, ElementsAre("a2"));
    EXPECT_FALSE(pool.TrySubmit(Task("b", "b4", 21)));
    go_.Notify();
  }
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "b2", "b3"));
}

// Not the one with most tasks, where bytes are full, nor the other way round.
TEST_F(BusyWorkPoolTest, WhoHasMostOfWhatIsFullMakesRoom) {
  {
    WorkPool pool({.threads = 1, .max_bytes = 101});
    Occupy(pool);
    EXPECT_TRUE(pool.TrySubmit(Task("large", "l1", 60)));
    for (const char* name : {"s1", "s2", "s3", "s4"}) {
      EXPECT_TRUE(pool.TrySubmit(Task("small", name, 1)));
    }
    EXPECT_TRUE(pool.TrySubmit(Task("new", "n1", 50)));
    EXPECT_THAT(refused_, ElementsAre("l1"));
    go_.Notify();
  }
  EXPECT_THAT(ran_, ElementsAre("s1", "n1", "s2", "s3", "s4"));
}

TEST_F(BusyWorkPoolTest, WhoHasMostTasksMakesRoomForATask) {
  {
    WorkPool pool({.threads = 1, .max_tasks = 5});
    Occupy(pool);
    EXPECT_TRUE(pool.TrySubmit(Task("large", "l1", 1000)));
    for (const char* name : {"s1", "s2", "s3"}) {
      EXPECT_TRUE(pool.TrySubmit(Task("small", name, 1)));
    }
    EXPECT_TRUE(pool.TrySubmit(Task("new", "n1", 1)));
    EXPECT_THAT(refused_, ElementsAre("s3"));
    go_.Notify();
  }
  EXPECT_THAT(ran_, ElementsAre("l1", "s1", "n1", "s2"));
}

TEST_F(BusyWorkPoolTest, WhatIsWithdrawnNeverRuns) {
  const int owners[2] = {};
  {
    WorkPool pool({.threads = 1, .max_tasks = 3, .max_bytes = 10});
    Occupy(pool);
    EXPECT_TRUE(pool.TrySubmit(Task("a", "a1", 4, &owners[0])));
    EXPECT_TRUE(pool.TrySubmit(Task("a", "a2", 5, &owners[1])));
    EXPECT_FALSE(pool.TrySubmit(Task("a", "a3", 4)));
    EXPECT_TRUE(pool.Withdraw(&owners[0]));
    EXPECT_FALSE(pool.Withdraw(&owners[0]));
    EXPECT_TRUE(pool.TrySubmit(Task("a", "a4", 4)));  // in its room
    go_.Notify();
  }
  EXPECT_THAT(ran_, ElementsAre("a2", "a4"));
  EXPECT_TRUE(refused_.empty());
}

TEST(WorkPoolTest, WhatRunsCannotBeWithdrawn) {
  absl::Notification begun, go;
  const int owner = 0;
  WorkPool pool({.threads = 1});
  EXPECT_TRUE(pool.TrySubmit({.run =
                                  [&] {
                                    begun.Notify();
                                    go.WaitForNotification();
                                  },
                              .owner = &owner}));
  begun.WaitForNotification();
  EXPECT_FALSE(pool.Withdraw(&owner));
  go.Notify();
}

TEST(WorkPoolTest, OneLargeTaskAtATimeLeavesAThreadToSmallOnes) {
  absl::Notification first, second, go, small, next;
  {
    WorkPool pool({.threads = 2, .large_bytes = 100});
    EXPECT_TRUE(pool.TrySubmit({"a", 100, [&] {
                                  first.Notify();
                                  go.WaitForNotification();
                                }}));
    first.WaitForNotification();
    EXPECT_TRUE(pool.TrySubmit({"b", 100, [&] {
                                  EXPECT_TRUE(go.HasBeenNotified());
                                  second.Notify();
                                }}));
    // Ends although both large ones came before it.
    EXPECT_TRUE(pool.TrySubmit({"c", 99, [&] { small.Notify(); }}));
    small.WaitForNotification();
    // Nor does the end of that one let the other large one run.
    EXPECT_TRUE(pool.TrySubmit({"d", 99, [&] { next.Notify(); }}));
    next.WaitForNotification();
    EXPECT_FALSE(second.HasBeenNotified());
    go.Notify();
  }
  EXPECT_TRUE(second.HasBeenNotified());
}

}  // namespace
}  // namespace nacre::coordinator
