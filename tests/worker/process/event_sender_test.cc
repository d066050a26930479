#include "worker/process/event_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>

#include "absl/synchronization/notification.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(EventSenderTest, DeliversInOrderWithTheStream) {
  std::vector<std::pair<StreamId, int>> delivered;
  EventSender<int> sender([&](StreamId stream, const int& event) {
    delivered.emplace_back(stream, event);
  });
  sender.Send(7, 1);
  sender.Send(8, 2);
  sender.Send(7, 3);
  EXPECT_TRUE(delivered.empty());
  sender.Deliver(Delivery::kElsewhere);
  sender.Drain();
  EXPECT_THAT(delivered, ElementsAre(Pair(7, 1), Pair(8, 2), Pair(7, 3)));
}

TEST(EventSenderTest, DeliversOnTheCallersThread) {
  std::vector<std::thread::id> threads;
  EventSender<int> sender([&](StreamId, const int&) {
    threads.push_back(std::this_thread::get_id());
  });
  sender.Send(1, 1);
  sender.Send(1, 2);
  sender.Deliver(Delivery::kHere);
  EXPECT_THAT(threads, ElementsAre(std::this_thread::get_id(),
                                   std::this_thread::get_id()));
  sender.Deliver(Delivery::kHere);  // nothing is left
  EXPECT_EQ(threads.size(), 2);
}

TEST(EventSenderTest, DeliversOnItsOwnThread) {
  absl::Notification delivered;
  std::thread::id thread;
  EventSender<int> sender([&](StreamId, const int&) {
    thread = std::this_thread::get_id();
    delivered.Notify();
  });
  sender.Send(1, 1);
  sender.Deliver(Delivery::kElsewhere);
  delivered.WaitForNotification();
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(EventSenderTest, LeavesTheRestToTheThreadThatIsAtIt) {
  absl::Notification begun, release;
  std::vector<int> delivered;
  EventSender<int> sender([&](StreamId, const int& event) {
    if (event == 0) {
      begun.Notify();
      release.WaitForNotification();
    }
    delivered.push_back(event);
  });
  sender.Send(1, 0);
  sender.Deliver(Delivery::kElsewhere);
  begun.WaitForNotification();
  sender.Send(1, 1);
  sender.Deliver(Delivery::kHere);  // does not wait, nor overtake
  release.Notify();
  sender.Drain();
  EXPECT_THAT(delivered, ElementsAre(0, 1));
}

// The engine's thread and the sender's meet at every event.
TEST(EventSenderTest, KeepsTheOrderWhoeverDelivers) {
  std::vector<int> delivered;
  constexpr int kCount = 2000;
  {
    EventSender<int> sender(
        [&](StreamId, const int& event) { delivered.push_back(event); });
    for (int i = 0; i < kCount; ++i) {
      sender.Send(1, i);
      sender.Deliver(i % 3 == 0 ? Delivery::kElsewhere : Delivery::kHere);
    }
  }
  std::vector<int> all(kCount);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(delivered, all);
}

TEST(EventSenderTest, SendDoesNotWaitForASlowDelivery) {
  absl::Notification release;
  std::vector<int> delivered;
  EventSender<int> sender([&](StreamId, const int& event) {
    release.WaitForNotification();
    delivered.push_back(event);
  });
  for (int i = 0; i < 3; ++i) {  // returns though none is out
    sender.Send(1, i);
    sender.Deliver(Delivery::kElsewhere);
  }
  release.Notify();
  sender.Drain();
  EXPECT_THAT(delivered, ElementsAre(0, 1, 2));
}

TEST(EventSenderTest, ItsEndDeliversWhatIsLeft) {
  std::vector<int> delivered;
  auto sender = std::make_unique<EventSender<int>>(
      [&](StreamId, const int& event) { delivered.push_back(event); });
  for (int i = 0; i < 1000; ++i) sender->Send(1, i);
  sender.reset();
  std::vector<int> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(delivered, all);
}

TEST(EventSenderTest, DrainOfAnIdleSenderReturns) {
  EventSender<int> sender([](StreamId, const int&) {});
  sender.Drain();
  sender.Drain();
}

}  // namespace
}  // namespace nacre::worker
