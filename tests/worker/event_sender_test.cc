#include "worker/event_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

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
  sender.Drain();
  EXPECT_THAT(delivered, ElementsAre(Pair(7, 1), Pair(8, 2), Pair(7, 3)));
}

TEST(EventSenderTest, SendDoesNotWaitForASlowDelivery) {
  absl::Notification release;
  std::vector<int> delivered;
  EventSender<int> sender([&](StreamId, const int& event) {
    release.WaitForNotification();
    delivered.push_back(event);
  });
  for (int i = 0; i < 3; ++i) sender.Send(1, i);  // returns though none is out
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
