#include "gateway/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace nacre::gateway {
namespace {

TEST(EventLoopTest, RunsInOrderOnOneThread) {
  EventLoop loop;
  std::string order;
  absl::Notification done;
  std::thread::id first;
  loop.Post([&] {
    order += "a";
    first = std::this_thread::get_id();
  });
  loop.PostAfter(absl::Milliseconds(1), [&] {
    order += "c";
    EXPECT_EQ(std::this_thread::get_id(), first);
    done.Notify();
  });
  loop.Post([&] { order += "b"; });
  done.WaitForNotification();
  EXPECT_EQ(order, "abc");
}

// The end of a call of gRPC is posted, and frees what the call holds: dropped,
// it would never be freed.
TEST(EventLoopTest, WhatWasPostedRunsBeforeItStops) {
  EventLoop loop;
  absl::Notification stops;
  std::string order;
  loop.Post([&] {
    stops.WaitForNotification();
    order += "a";
  });
  for (const char letter : {'b', 'c', 'd'}) {
    loop.Post([&order, letter] { order += letter; });
  }
  std::thread stopper([&] { loop.Stop(); });
  // So that a loop that would stop at once is told to before it goes on. A test
  // that waits too little here finds less, and never fails.
  absl::SleepFor(absl::Milliseconds(50));
  stops.Notify();
  stopper.join();
  loop.Stop();
  EXPECT_EQ(order, "abcd");
}

TEST(EventLoopTest, WorkThatWaitsHasALimit) {
  EventLoop loop(1);
  absl::Notification begun;
  absl::Notification go_on;
  ASSERT_TRUE(loop.PostWork([&] {
    begun.Notify();
    go_on.WaitForNotification();
  }));
  begun.WaitForNotification();
  std::atomic<int> ran{0};
  int taken = 0;
  while (loop.PostWork([&] { ++ran; })) ++taken;
  EXPECT_EQ(taken, 1024);
  absl::Notification last;
  go_on.Notify();
  while (!loop.PostWork([&] { last.Notify(); })) std::this_thread::yield();
  last.WaitForNotification();
  EXPECT_EQ(ran, 1024);
}

}  // namespace
}  // namespace nacre::gateway
