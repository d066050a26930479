#include "common/periodic_thread.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"

namespace nacre {
namespace {

TEST(PeriodicThreadTest, CallsAgainAndAgain) {
  absl::BlockingCounter three(3);
  std::atomic<int> num_calls{0};
  PeriodicThread thread;
  thread.Start(absl::Milliseconds(1), [&] {
    if (++num_calls <= 3) three.DecrementCount();
  });
  three.Wait();
  thread.Stop();
  EXPECT_GE(num_calls, 3);
}

TEST(PeriodicThreadTest, NoCallFollowsStop) {
  absl::Notification began;
  std::atomic<int> num_calls{0};
  PeriodicThread thread;
  thread.Start(absl::Milliseconds(1), [&] {
    if (++num_calls == 1) began.Notify();
  });
  began.WaitForNotification();
  thread.Stop();
  const int num_stopped = num_calls;
  thread.Stop();
  EXPECT_EQ(num_calls, num_stopped);
}

TEST(PeriodicThreadTest, StopDoesNotWaitForThePeriod) {
  PeriodicThread thread;
  thread.Start(absl::Hours(24 * 365), [] { ADD_FAILURE(); });
}

TEST(PeriodicThreadTest, StopWithoutStart) { PeriodicThread().Stop(); }

}  // namespace
}  // namespace nacre
