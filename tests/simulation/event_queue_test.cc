#include "simulation/event_queue.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simulation/link.h"

namespace nacre::simulation {
namespace {

using ::testing::ElementsAre;

void RunAll(EventQueue* queue) {
  while (!queue->empty()) queue->RunNext();
}

TEST(EventQueue, RunsInOrderOfTimeThenOfPosting) {
  EventQueue queue;
  std::vector<int> seen;
  for (const auto& [time_ns, name] :
       std::vector<std::pair<int64_t, int>>{{5, 1}, {3, 2}, {5, 3}, {3, 4}}) {
    queue.Post(time_ns, [&seen, name = name] { seen.push_back(name); });
  }
  EXPECT_EQ(queue.next_time_ns(), 3);
  RunAll(&queue);
  EXPECT_THAT(seen, ElementsAre(2, 4, 1, 3));
  EXPECT_EQ(queue.now_ns(), 5);
}

TEST(EventQueue, AnEventMayPostAndTimeNeverFalls) {
  EventQueue queue;
  std::vector<int64_t> times;
  queue.Post(10, [&] {
    queue.Post(2, [&] { times.push_back(queue.now_ns()); });
    queue.Post(12, [&] { times.push_back(queue.now_ns()); });
  });
  RunAll(&queue);
  EXPECT_THAT(times, ElementsAre(10, 12));
}

TEST(Link, KeepsTheOrderAndStaysWithinItsDelays) {
  EventQueue queue;
  Random random(7);
  Link link(&queue, &random, {100, 900});
  std::vector<int> seen;
  std::vector<int64_t> delays;
  for (int i = 0; i < 200; ++i) {
    queue.Post(i * 10, [&, i] {
      const int64_t sent_ns = queue.now_ns();
      link.Send([&, i, sent_ns] {
        seen.push_back(i);
        delays.push_back(queue.now_ns() - sent_ns);
      });
    });
  }
  RunAll(&queue);
  ASSERT_EQ(seen.size(), 200);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(seen[i], i);
    EXPECT_GE(delays[i], 100);
    EXPECT_LE(delays[i], 900);
  }
}

}  // namespace
}  // namespace nacre::simulation
