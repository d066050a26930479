#include "coordinator/dispatch/call_timers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;

TEST(CallTimersTest, EachRunsOnceAtItsTime) {
  std::vector<int64_t> wakes;
  std::vector<int> ran;
  CallTimers timers([&](int64_t at_ns) { wakes.push_back(at_ns); });
  const int keys[3] = {};
  timers.Set(&keys[0], 30, [&] { ran.push_back(0); });
  timers.Set(&keys[1], 10, [&] { ran.push_back(1); });
  timers.Set(&keys[2], 20, [&] { ran.push_back(2); });
  EXPECT_THAT(wakes, ElementsAre(30, 10, 20));
  EXPECT_EQ(timers.Tick(9), 10);
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(timers.Tick(20), 30);
  EXPECT_THAT(ran, ElementsAre(1, 2));
  EXPECT_EQ(timers.Tick(30), kNever);
  EXPECT_EQ(timers.Tick(1000), kNever);
  EXPECT_THAT(ran, ElementsAre(1, 2, 0));
}

TEST(CallTimersTest, ANewTimeTakesTheOldOnesPlace) {
  std::vector<int> ran;
  CallTimers timers(nullptr);
  const int key = 0;
  timers.Set(&key, 10, [&] { ran.push_back(1); });
  timers.Set(&key, 20, [&] { ran.push_back(2); });
  EXPECT_EQ(timers.Tick(10), 20);
  EXPECT_TRUE(ran.empty());
  timers.Tick(20);
  EXPECT_THAT(ran, ElementsAre(2));
}

TEST(CallTimersTest, NeverAndClearLetGoOfTheCall) {
  CallTimers timers(nullptr);
  const int key = 0;
  for (const bool clear : {false, true}) {
    auto owned = std::make_shared<int>(7);
    const std::weak_ptr<int> weak = owned;
    timers.Set(&key, 10, [owned = std::move(owned)] {});
    EXPECT_FALSE(weak.expired());
    if (clear) {
      timers.Clear(&key);
    } else {
      timers.Set(&key, kNever, [] { ADD_FAILURE(); });
    }
    EXPECT_TRUE(weak.expired());
    EXPECT_EQ(timers.Tick(100), kNever);
  }
}

TEST(CallTimersTest, WhatRunsMaySetItself) {
  int runs = 0;
  CallTimers timers(nullptr);
  const std::function<void()> again = [&] {
    if (++runs < 3) timers.Set(&runs, 10 * (runs + 1), again);
  };
  timers.Set(&runs, 10, again);
  EXPECT_EQ(timers.Tick(10), 20);
  EXPECT_EQ(timers.Tick(20), 30);
  EXPECT_EQ(timers.Tick(30), kNever);
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace nacre::coordinator
