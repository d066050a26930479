#include "kernels/rank_progress.h"

#include <chrono>

#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit(1000);

// In the call after so many; `ahead` more are queued.
RankProgress Waits(int rank, uint64_t done, int ms, uint64_t ahead = 0) {
  return {rank, done + 1 + ahead, done, "a broadcast of 8 bytes",
          milliseconds(ms)};
}
RankProgress Idle(int rank, uint64_t calls) {
  return {rank, calls, calls, "", milliseconds(0)};
}

TEST(RankProgressTest, NamesTheRankThatHasNotMadeTheCall) {
  EXPECT_EQ(
      DescribeHang({{0, {Waits(0, 4, 900), Idle(1, 4), Waits(2, 4, 1100)}}}, 3,
                   kLimit),
      "ranks 0, 2 have waited for 1100 ms in call 5, a broadcast of 8 bytes, "
      "for rank 1, which has made 4");
  // Rank 2 is through with the call before, which rank 3 has not made.
  EXPECT_EQ(DescribeHang({{0, {Waits(0, 4, 1100, 30), Waits(1, 5, 1050)}},
                          {1, {Idle(2, 4), Idle(3, 3)}, milliseconds(100)}},
                         4, kLimit),
            "rank 0 has waited for 1100 ms in call 5, a broadcast of 8 bytes, "
            "for rank 2 of node 1, which has made 4, rank 3 of node 1, which "
            "has made 3");
}

TEST(RankProgressTest, SaysWhereAllHaveMadeIt) {
  EXPECT_EQ(
      DescribeHang({{0, {Waits(0, 0, 1100), Waits(1, 0, 1100)}}}, 2, kLimit),
      "ranks 0, 1 have waited for 1100 ms in call 1, a broadcast of 8 "
      "bytes, which all have made");
}

// As a node does that hears nothing of the others.
TEST(RankProgressTest, SaysNothingOfRanksThatItDoesNotKnow) {
  EXPECT_EQ(DescribeHang({{1, {Waits(1, 0, 1100)}}}, 2, kLimit),
            "rank 1 has waited for 1100 ms in call 1, a broadcast of 8 bytes");
}

TEST(RankProgressTest, NamesNodesThatHaveSaidNothing) {
  EXPECT_EQ(DescribeHang({{0, {Waits(0, 4, 1100)}},
                          {1, {Waits(1, 4, 300)}, milliseconds(800)},
                          {2, {}},
                          {3, {Idle(3, 5)}, milliseconds(100)}},
                         4, kLimit),
            "rank 0 has waited for 1100 ms in call 5, a broadcast of 8 bytes; "
            "node 1 has said nothing for 800 ms, node 2 has said nothing");
}

// A node that fell silent in the middle of a step waited in another call then.
TEST(RankProgressTest, WhatIsOldNamesNoCall) {
  EXPECT_EQ(
      DescribeHang({{0, {Waits(0, 5000, 1100, 9)}},
                    {1, {Waits(1, 99, 3, 20)}, milliseconds(9000)}},
                   2, kLimit),
      "rank 0 has waited for 1100 ms in call 5001, a broadcast of 8 bytes, for "
      "rank 1 of node 1, which has made 120; node 1 has said nothing for 9000 "
      "ms");
}

TEST(RankProgressTest, WhatIsOldProvesNoHang) {
  EXPECT_FALSE(Hangs({{0, {Waits(0, 4, 1000), Idle(1, 4)}}}, kLimit));
  EXPECT_TRUE(Hangs({{0, {Idle(1, 4), Waits(0, 4, 1001)}}}, kLimit));
  EXPECT_FALSE(Hangs({{0, {Idle(0, 9)}}, {1, {}}}, kLimit));
  EXPECT_TRUE(Hangs(
      {{0, {Idle(0, 4)}}, {1, {Waits(1, 4, 901)}, milliseconds(100)}}, kLimit));
  EXPECT_FALSE(Hangs(
      {{0, {Idle(0, 4)}}, {1, {Waits(1, 4, 901)}, milliseconds(501)}}, kLimit));
}

}  // namespace
}  // namespace nacre::kernels
