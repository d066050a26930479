#include "coordinator/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One target, which has room for the requests from `least_small` on.
absl::optional<uint64_t> Pop(Admission& admission, uint64_t least_small) {
  bool is_kept = false;
  return admission.Pop(
      [&](uint64_t id) { return !is_kept && id >= least_small; },
      [&](uint64_t) { is_kept = true; });
}
constexpr uint64_t kAlways = 0;
constexpr uint64_t kNone = 1000000;

TEST(AdmissionTest, FirstComeFirstServed) {
  Admission admission(8);
  for (uint64_t id : {5, 3, 9}) admission.Push(id);
  EXPECT_THAT(admission.queue(), ElementsAre(5, 3, 9));
  EXPECT_EQ(Pop(admission, kAlways), 5u);
  EXPECT_EQ(Pop(admission, kAlways), 3u);
  EXPECT_EQ(Pop(admission, kAlways), 9u);
  EXPECT_EQ(Pop(admission, kAlways), absl::nullopt);
  EXPECT_EQ(admission.running(), 3);
  EXPECT_EQ(admission.waiting(), 0);
}

TEST(AdmissionTest, NoMoreRunThanTheMaximum) {
  Admission admission(2);
  for (uint64_t id : {1, 2, 3}) admission.Push(id);
  EXPECT_TRUE(Pop(admission, kAlways).has_value());
  EXPECT_TRUE(Pop(admission, kAlways).has_value());
  EXPECT_EQ(Pop(admission, kAlways), absl::nullopt);
  admission.OnEnded();
  EXPECT_EQ(Pop(admission, kAlways), 3u);
}

TEST(AdmissionTest, WhoLeavesTheQueueDoesNotStart) {
  Admission admission(8);
  for (uint64_t id : {1, 2, 3}) admission.Push(id);
  EXPECT_TRUE(admission.Remove(2));
  EXPECT_FALSE(admission.Remove(2));
  EXPECT_EQ(Pop(admission, kAlways), 1u);
  EXPECT_EQ(Pop(admission, kAlways), 3u);
  EXPECT_FALSE(admission.Remove(3));
  EXPECT_EQ(Pop(admission, kAlways), absl::nullopt);
}

TEST(AdmissionTest, WithoutRoomNobodyStarts) {
  Admission admission(8);
  admission.Push(1);
  EXPECT_EQ(Pop(admission, kNone), absl::nullopt);
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.running(), 0);
}

// A large request among small ones, of which one always fits.
TEST(AdmissionTest, ALargeRequestIsPassedOnlySoOften) {
  constexpr uint64_t kSmall = 2;
  Admission admission(1000);
  admission.Push(1);
  uint64_t next = 2;
  int passes = 0;
  for (; passes < 1000; ++passes) {
    admission.Push(next);
    const auto id = Pop(admission, kSmall);
    if (!id.has_value()) break;
    EXPECT_EQ(*id, next++);
    admission.OnEnded();
  }
  EXPECT_EQ(passes, Admission::kMaxPasses);
  // Now everything waits until there is room for it.
  EXPECT_EQ(Pop(admission, kSmall), absl::nullopt);
  EXPECT_EQ(Pop(admission, kAlways), 1u);
  EXPECT_EQ(Pop(admission, kSmall), next);
}

// The one behind has been passed as often as its betters allow: its turn comes
// after theirs, not never.
TEST(AdmissionTest, EveryPassedRequestCountsItsOwnPasses) {
  Admission admission(1000);
  admission.Push(1);
  constexpr uint64_t kSmall = 3;
  for (uint64_t id = 10; id < 14; ++id) {
    admission.Push(id);
    EXPECT_EQ(Pop(admission, kSmall), id);
  }
  admission.Push(2);
  constexpr uint64_t kUpToMedium = 2;
  for (int i = 4; i < Admission::kMaxPasses; ++i) {
    admission.Push(100 + i);
    EXPECT_EQ(Pop(admission, kSmall), 100 + i);
  }
  admission.Push(3);
  EXPECT_EQ(Pop(admission, kUpToMedium), absl::nullopt);
  EXPECT_EQ(Pop(admission, kAlways), 1u);
  EXPECT_EQ(Pop(admission, kUpToMedium), 2u);
  EXPECT_EQ(Pop(admission, kSmall), 3u);
  EXPECT_THAT(admission.queue(), IsEmpty());
}

// Of two targets: even ids can run on one of them only, odd ones on the other.
TEST(AdmissionTest, WhoWasPassedKeepsOnlyItsOwnTargetFree) {
  Admission admission(1000);
  bool is_kept[2] = {false, false};
  bool is_free[2] = {false, true};
  const auto pop = [&] {
    is_kept[0] = is_kept[1] = false;
    return admission.Pop(
        [&](uint64_t id) { return is_free[id % 2] && !is_kept[id % 2]; },
        [&](uint64_t id) { is_kept[id % 2] = true; });
  };
  admission.Push(2);
  for (uint64_t id = 101; id < 151; id += 2) {
    admission.Push(id);
    EXPECT_EQ(pop(), id);
  }
  admission.Push(4);
  EXPECT_EQ(pop(), absl::nullopt);
  is_free[0] = true;
  EXPECT_EQ(pop(), 2u);
  EXPECT_EQ(pop(), 4u);
}

}  // namespace
}  // namespace nacre::coordinator
