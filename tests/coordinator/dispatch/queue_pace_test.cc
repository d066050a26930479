#include "coordinator/dispatch/queue_pace.h"

#include <gtest/gtest.h>

namespace nacre::coordinator {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(QueuePaceTest, WithoutAStartNothingIsKnown) {
  QueuePace pace;
  EXPECT_EQ(pace.RetryAfterSeconds(5, 10 * kSecond), 0);
  pace.Begin(kSecond);
  EXPECT_EQ(pace.RetryAfterSeconds(5, 10 * kSecond), 0);
}

TEST(QueuePaceTest, AllThatWaitHaveStartedByThen) {
  QueuePace pace;
  pace.Begin(100 * kSecond);
  // Two in 10 s.
  pace.NoteStart(103 * kSecond);
  pace.NoteStart(108 * kSecond);
  EXPECT_EQ(pace.RetryAfterSeconds(4, 110 * kSecond), 20);
  EXPECT_EQ(pace.RetryAfterSeconds(1, 110 * kSecond), 5);
  // Up, to 1 at least and 60 at most.
  EXPECT_EQ(pace.RetryAfterSeconds(1, 110 * kSecond + 1), 6);
  EXPECT_EQ(pace.RetryAfterSeconds(1, 100 * kSecond + 10), 1);
  EXPECT_EQ(pace.RetryAfterSeconds(1, 100 * kSecond), 1);
  EXPECT_EQ(pace.RetryAfterSeconds(0, 110 * kSecond), 1);
  EXPECT_EQ(pace.RetryAfterSeconds(1000, 110 * kSecond), 60);
  EXPECT_EQ(pace.RetryAfterSeconds(1'000'000'000, 200 * kSecond), 60);
}

// It slows down while nothing starts.
TEST(QueuePaceTest, SilenceCounts) {
  QueuePace pace;
  pace.Begin(0);
  pace.NoteStart(kSecond);
  EXPECT_EQ(pace.RetryAfterSeconds(3, kSecond), 3);
  EXPECT_EQ(pace.RetryAfterSeconds(3, 10 * kSecond), 30);
}

TEST(QueuePaceTest, OldStartsAreForgotten) {
  QueuePace pace;
  pace.Begin(0);
  // One in 10 s, then one each second.
  int64_t now_ns = 0;
  for (int i = 0; i < 100; ++i) pace.NoteStart(now_ns += 10 * kSecond);
  EXPECT_EQ(pace.RetryAfterSeconds(2, now_ns), 20);
  for (int i = 0; i < 33; ++i) pace.NoteStart(now_ns += kSecond);
  EXPECT_EQ(pace.RetryAfterSeconds(2, now_ns), 2);
  // A queue that was empty begins anew.
  pace.Begin(now_ns += kSecond);
  EXPECT_EQ(pace.RetryAfterSeconds(2, now_ns), 0);
}

}  // namespace
}  // namespace nacre::coordinator
