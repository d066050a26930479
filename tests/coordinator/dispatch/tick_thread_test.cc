#include "coordinator/dispatch/tick_thread.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace nacre::coordinator {
namespace {

constexpr int64_t kMillisecond = 1000000;

TEST(TickThreadTest, CallsAgainWhenTheTickAskedAndNotBefore) {
  absl::Notification done;
  std::vector<int64_t> called_ns;
  std::vector<int64_t> asked_ns;
  TickThread thread;
  thread.Start([&]() -> int64_t {
    called_ns.push_back(MonotonicNs());
    if (called_ns.size() == 4) {
      done.Notify();
      return kNever;
    }
    asked_ns.push_back(MonotonicNs() + kMillisecond);
    return asked_ns.back();
  });
  done.WaitForNotification();
  thread.Stop();
  ASSERT_EQ(called_ns.size(), 4u);
  for (size_t i = 0; i < asked_ns.size(); ++i) {
    EXPECT_GE(called_ns[i + 1], asked_ns[i]);
  }
}

TEST(TickThreadTest, AnEarlierWakeComesBeforeAFarTick) {
  absl::Notification first;
  absl::Notification second;
  int calls = 0;
  TickThread thread;
  thread.Start([&]() -> int64_t {
    if (++calls == 1) first.Notify();
    if (calls == 2) second.Notify();
    return MonotonicNs() + int64_t{3600} * 1000 * kMillisecond;
  });
  first.WaitForNotification();
  thread.WakeAt(MonotonicNs());
  second.WaitForNotification();
  thread.Stop();
  EXPECT_EQ(calls, 2);
}

TEST(TickThreadTest, AWakeDuringATickIsNotLost) {
  absl::Notification second;
  int calls = 0;
  TickThread thread;
  thread.Start([&]() -> int64_t {
    if (++calls == 1) thread.WakeAt(MonotonicNs());
    if (calls == 2) second.Notify();
    return kNever;
  });
  second.WaitForNotification();
  thread.Stop();
  EXPECT_EQ(calls, 2);
}

TEST(TickThreadTest, ALaterWakeDoesNotPutOffAnEarlierOne) {
  absl::Notification second;
  int calls = 0;
  TickThread thread;
  thread.Start([&]() -> int64_t {
    if (++calls == 1) {
      thread.WakeAt(MonotonicNs());
      thread.WakeAt(MonotonicNs() + int64_t{3600} * 1000 * kMillisecond);
    }
    if (calls == 2) second.Notify();
    return kNever;
  });
  EXPECT_TRUE(second.WaitForNotificationWithTimeout(absl::Minutes(1)));
  thread.Stop();
}

TEST(TickThreadTest, AWakeBeforeTheStartIsNotLost) {
  absl::BlockingCounter calls(2);
  int count = 0;
  TickThread thread;
  thread.WakeAt(MonotonicNs());
  thread.Start([&] {
    if (++count <= 2) calls.DecrementCount();
    return kNever;
  });
  calls.Wait();
}

TEST(TickThreadTest, NothingIsCalledAfterStop) {
  int calls = 0;
  TickThread thread;
  thread.Start([&] {
    ++calls;
    return MonotonicNs();
  });
  thread.Stop();
  const int at_stop = calls;
  thread.WakeAt(0);
  thread.Stop();
  EXPECT_EQ(calls, at_stop);
}

TEST(TickThreadTest, ProgressTellsARunningTickFromRest) {
  absl::Notification entered, leave;
  absl::Notification second;
  int calls = 0;
  TickThread thread;
  EXPECT_FALSE(thread.progress().working);
  thread.Start([&] {
    if (++calls == 1) {
      entered.Notify();
      leave.WaitForNotification();
    } else {
      second.Notify();
    }
    return kNever;
  });
  entered.WaitForNotification();
  EXPECT_TRUE(thread.progress().working);
  EXPECT_EQ(thread.progress().finished, 0u);
  leave.Notify();
  thread.WakeAt(MonotonicNs());
  second.WaitForNotification();
  thread.Stop();
  EXPECT_FALSE(thread.progress().working);
  EXPECT_EQ(thread.progress().finished, 2u);
}

// So a watchdog sees a thread that does not come to it.
TEST(TickThreadTest, ATickThatIsDueIsWorkBeforeItBegins) {
  TickThread thread;
  thread.WakeAt(kNever - 1);
  EXPECT_FALSE(thread.progress().working);
  thread.WakeAt(MonotonicNs());
  EXPECT_TRUE(thread.progress().working);
  EXPECT_EQ(thread.progress().finished, 0u);
}

TEST(TickThreadTest, OneThatNeverStartedStops) {
  TickThread thread;
  thread.WakeAt(0);
  thread.Stop();
}

}  // namespace
}  // namespace nacre::coordinator
