#include "common/clock.h"

#include <gtest/gtest.h>

namespace nacre {
namespace {

TEST(MonotonicNsTest, DoesNotGoBack) {
  const int64_t before_ns = MonotonicNs();
  EXPECT_GE(MonotonicNs(), before_ns);
}

TEST(AfterTest, NeverHasNoNumber) {
  EXPECT_EQ(After(5, 7), 12);
  EXPECT_EQ(After(5, kNever), kNever);
  EXPECT_EQ(After(5, kNever - 5), kNever);
  EXPECT_EQ(After(5, kNever - 6), kNever - 1);
  EXPECT_EQ(After(0, 0), 0);
}

}  // namespace
}  // namespace nacre
