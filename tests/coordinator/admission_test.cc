#include "coordinator/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kAlways = [](int64_t) { return true; };
constexpr auto kNone = [](int64_t) { return false; };

TEST(AdmissionTest, FirstComeFirstServed) {
  Admission admission(8);
  for (uint64_t id : {5, 3, 9}) admission.Push(id, 16);
  EXPECT_THAT(admission.queue(), ElementsAre(5, 3, 9));
  EXPECT_EQ(admission.Pop(kAlways), 5u);
  EXPECT_EQ(admission.Pop(kAlways), 3u);
  EXPECT_EQ(admission.Pop(kAlways), 9u);
  EXPECT_EQ(admission.Pop(kAlways), absl::nullopt);
  EXPECT_EQ(admission.running(), 3);
  EXPECT_EQ(admission.waiting(), 0);
}

TEST(AdmissionTest, NoMoreRunThanTheMaximum) {
  Admission admission(2);
  for (uint64_t id : {1, 2, 3}) admission.Push(id, 16);
  EXPECT_TRUE(admission.Pop(kAlways).has_value());
  EXPECT_TRUE(admission.Pop(kAlways).has_value());
  EXPECT_EQ(admission.Pop(kAlways), absl::nullopt);
  admission.OnEnded();
  EXPECT_EQ(admission.Pop(kAlways), 3u);
}

TEST(AdmissionTest, WhoLeavesTheQueueDoesNotStart) {
  Admission admission(8);
  for (uint64_t id : {1, 2, 3}) admission.Push(id, 16);
  EXPECT_TRUE(admission.Remove(2));
  EXPECT_FALSE(admission.Remove(2));
  EXPECT_EQ(admission.Pop(kAlways), 1u);
  EXPECT_EQ(admission.Pop(kAlways), 3u);
  EXPECT_FALSE(admission.Remove(3));
  EXPECT_EQ(admission.Pop(kAlways), absl::nullopt);
}

TEST(AdmissionTest, WithoutRoomNobodyStarts) {
  Admission admission(8);
  admission.Push(1, 16);
  EXPECT_EQ(admission.Pop(kNone), absl::nullopt);
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.running(), 0);
}

// A large request among small ones, of which one always fits.
TEST(AdmissionTest, ALargeRequestIsPassedOnlySoOften) {
  const auto small = [](int64_t need) { return need <= 16; };
  Admission admission(1000);
  admission.Push(1, 160);
  uint64_t next = 2;
  int passes = 0;
  for (; passes < 1000; ++passes) {
    admission.Push(next, 16);
    const auto id = admission.Pop(small);
    if (!id.has_value()) break;
    EXPECT_EQ(*id, next++);
    admission.OnEnded();
  }
  EXPECT_EQ(passes, Admission::kMaxPasses);
  // Now everything waits until there is room for it.
  EXPECT_EQ(admission.Pop(small), absl::nullopt);
  EXPECT_EQ(admission.Pop(kAlways), 1u);
  EXPECT_EQ(admission.Pop(small), next);
}

// The one behind has been passed as often as its betters allow: its turn comes
// after theirs, not never.
TEST(AdmissionTest, EveryPassedRequestCountsItsOwnPasses) {
  Admission admission(1000);
  admission.Push(1, 320);
  const auto small = [](int64_t need) { return need <= 16; };
  for (uint64_t id = 10; id < 14; ++id) {
    admission.Push(id, 16);
    EXPECT_EQ(admission.Pop(small), id);
  }
  admission.Push(2, 160);
  const auto up_to_medium = [](int64_t need) { return need <= 160; };
  for (int i = 4; i < Admission::kMaxPasses; ++i) {
    admission.Push(100 + i, 16);
    EXPECT_EQ(admission.Pop(small), 100 + i);
  }
  admission.Push(3, 16);
  EXPECT_EQ(admission.Pop(up_to_medium), absl::nullopt);
  EXPECT_EQ(admission.Pop(kAlways), 1u);
  EXPECT_EQ(admission.Pop(up_to_medium), 2u);
  EXPECT_EQ(admission.Pop(small), 3u);
  EXPECT_THAT(admission.queue(), IsEmpty());
}

}  // namespace
}  // namespace nacre::coordinator
