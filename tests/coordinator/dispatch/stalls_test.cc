#include "coordinator/dispatch/stalls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StallsTest : public ::testing::Test {
 protected:
  Stalls::Due At(int64_t now_ns) {
    return stalls_.At(now_ns, [this](uint64_t id) { return taken_.at(id); });
  }

  std::map<uint64_t, int64_t> taken_ = {{4, 10}, {5, 10}, {6, 10}};
  Stalls stalls_{/*timeout_ns=*/100};
};

TEST_F(StallsTest, AClientsTimeEndsOnce) {
  EXPECT_EQ(stalls_.Begin(5, 1000, 10), 1100);
  EXPECT_EQ(stalls_.Begin(5, 1050, 10), kNever);  // since 1000
  stalls_.Begin(4, 1000, 10);
  stalls_.Begin(6, 1020, 10);
  EXPECT_THAT(At(1099).sessions, IsEmpty());
  EXPECT_EQ(At(1099).next_ns, 1100);
  const Stalls::Due due = At(1100);
  EXPECT_THAT(due.sessions, ElementsAre(4, 5));
  EXPECT_EQ(due.next_ns, 1120);
}

TEST_F(StallsTest, AClientThatReadsHasMoreTime) {
  stalls_.Begin(5, 1000, 10);
  taken_[5] = 11;
  EXPECT_THAT(At(1100).sessions, IsEmpty());
  EXPECT_EQ(At(1150).next_ns, 1200);
  EXPECT_THAT(At(1200).sessions, ElementsAre(5));
  stalls_.End(5);
  EXPECT_THAT(At(5000).sessions, IsEmpty());
  EXPECT_EQ(At(5000).next_ns, kNever);
}

TEST_F(StallsTest, WithoutALimitNoClientStalls) {
  Stalls unlimited(kNever);
  EXPECT_EQ(unlimited.Begin(5, 1000, 10), kNever);
  const auto none = [](uint64_t) -> int64_t { return 10; };
  EXPECT_THAT(unlimited.At(kNever, none).sessions, IsEmpty());
}

TEST_F(StallsTest, ANewStallHasAllOfItsTime) {
  EXPECT_EQ(stalls_.Begin(4, 1000, 10), 1100);
  EXPECT_EQ(stalls_.Begin(5, 1000, 10), 1100);
  stalls_.End(5);
  EXPECT_EQ(stalls_.Begin(5, 1060, 10), 1160);
  const Stalls::Due due = At(1100);
  EXPECT_THAT(due.sessions, ElementsAre(4));
  EXPECT_EQ(due.next_ns, 1160);
}

}  // namespace
}  // namespace nacre::coordinator
