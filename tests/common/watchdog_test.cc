#include "common/watchdog.h"

#include <gtest/gtest.h>

namespace nacre {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kPeriod = 500 * kMs;
constexpr int64_t kTimeout = 8000 * kMs;

// A watchdog that looks every 500 ms, in virtual time.
class WatchdogTest : public ::testing::Test {
 protected:
  // Looks for `duration_ns` at an engine that stands still; whether it was ever
  // found hanging.
  bool Watch(int64_t duration_ns) {
    bool hung = false;
    for (int64_t end = now_ns_ + duration_ns; now_ns_ < end;) {
      now_ns_ += kPeriod;
      hung = watchdog_.Observe(progress_, now_ns_) || hung;
    }
    return hung;
  }

  int64_t now_ns_ = 1'000'000 * kMs;
  Progress progress_;
  Watchdog watchdog_{kTimeout, 2 * kPeriod};
};

TEST_F(WatchdogTest, AnIdleEngineNeverHangs) {
  EXPECT_FALSE(Watch(3'600'000 * kMs));
}

TEST_F(WatchdogTest, WorkWithoutProgressIsNoticedWithinTwoPeriods) {
  Watch(60'000 * kMs);
  progress_.working = true;
  EXPECT_FALSE(Watch(kTimeout));
  EXPECT_TRUE(Watch(2 * kPeriod));
  // 10 seconds from the last progress on, with the default of 8.
  EXPECT_LE(watchdog_.stalled_ns() + 2 * kPeriod, 10'000 * kMs);
}

TEST_F(WatchdogTest, AnyProgressStartsAnew) {
  progress_.working = true;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(Watch(kTimeout - kPeriod)) << i;
    ++progress_.finished;
  }
  EXPECT_TRUE(Watch(kTimeout + 2 * kPeriod));
  ++progress_.finished;
  EXPECT_FALSE(watchdog_.Observe(progress_, now_ns_ += kPeriod));
}

TEST_F(WatchdogTest, AnEngineThatBecomesIdleIsFine) {
  progress_.working = true;
  EXPECT_TRUE(Watch(kTimeout + 2 * kPeriod));
  progress_.working = false;
  EXPECT_FALSE(watchdog_.Observe(progress_, now_ns_ += kPeriod));
  // The same number as before the pause: the work is new all the same.
  progress_.working = true;
  EXPECT_FALSE(watchdog_.Observe(progress_, now_ns_ += 60'000 * kMs));
  EXPECT_FALSE(Watch(kTimeout - kPeriod));
}

TEST_F(WatchdogTest, TimeInWhichNobodyLookedCountsLittle) {
  progress_.working = true;
  EXPECT_FALSE(Watch(kTimeout - 4 * kPeriod));
  // The process was stopped for an hour.
  EXPECT_FALSE(watchdog_.Observe(progress_, now_ns_ += 3'600'000 * kMs));
  ++progress_.finished;
  EXPECT_FALSE(Watch(kTimeout - kPeriod));
}

TEST_F(WatchdogTest, AClockThatGoesBackIsNoTime) {
  progress_.working = true;
  EXPECT_FALSE(Watch(kTimeout - 2 * kPeriod));
  EXPECT_FALSE(watchdog_.Observe(progress_, 0));
  EXPECT_GT(watchdog_.stalled_ns(), 0);
}

}  // namespace
}  // namespace nacre
