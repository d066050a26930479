#include "coordinator/dispatch/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

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
// Each in a class of its own.
void Push(Admission& admission, uint64_t id) {
  admission.Push(id, absl::StrCat(id));
}
constexpr uint64_t kAlways = 0;
constexpr uint64_t kNone = 1000000;

TEST(AdmissionTest, FirstComeFirstServed) {
  Admission admission;
  for (uint64_t id : {5, 3, 9}) Push(admission, id);
  EXPECT_THAT(admission.queue(), ElementsAre(5, 3, 9));
  EXPECT_EQ(Pop(admission, kAlways), 5u);
  EXPECT_EQ(Pop(admission, kAlways), 3u);
  EXPECT_EQ(Pop(admission, kAlways), 9u);
  EXPECT_EQ(Pop(admission, kAlways), absl::nullopt);
  EXPECT_EQ(admission.waiting(), 0);
}

TEST(AdmissionTest, WhoLeavesTheQueueDoesNotStart) {
  Admission admission;
  for (uint64_t id : {1, 2, 3}) Push(admission, id);
  EXPECT_TRUE(admission.Remove(2));
  EXPECT_FALSE(admission.Remove(2));
  EXPECT_EQ(Pop(admission, kAlways), 1u);
  EXPECT_EQ(Pop(admission, kAlways), 3u);
  EXPECT_FALSE(admission.Remove(3));
  EXPECT_EQ(Pop(admission, kAlways), absl::nullopt);
}

TEST(AdmissionTest, WithoutRoomNobodyStarts) {
  Admission admission;
  Push(admission, 1);
  EXPECT_EQ(Pop(admission, kNone), absl::nullopt);
  EXPECT_EQ(admission.waiting(), 1);
}

// A large request among small ones, of which one always fits.
TEST(AdmissionTest, ALargeRequestIsPassedOnlySoOften) {
  constexpr uint64_t kSmall = 2;
  Admission admission;
  Push(admission, 1);
  uint64_t next = 2;
  int passes = 0;
  for (; passes < 1000; ++passes) {
    Push(admission, next);
    const auto id = Pop(admission, kSmall);
    if (!id.has_value()) break;
    EXPECT_EQ(*id, next++);
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
  Admission admission;
  Push(admission, 1);
  constexpr uint64_t kSmall = 3;
  for (uint64_t id = 10; id < 14; ++id) {
    Push(admission, id);
    EXPECT_EQ(Pop(admission, kSmall), id);
  }
  Push(admission, 2);
  constexpr uint64_t kUpToMedium = 2;
  for (int i = 4; i < Admission::kMaxPasses; ++i) {
    Push(admission, 100 + i);
    EXPECT_EQ(Pop(admission, kSmall), 100 + i);
  }
  Push(admission, 3);
  EXPECT_EQ(Pop(admission, kUpToMedium), absl::nullopt);
  EXPECT_EQ(Pop(admission, kAlways), 1u);
  EXPECT_EQ(Pop(admission, kUpToMedium), 2u);
  EXPECT_EQ(Pop(admission, kSmall), 3u);
  EXPECT_THAT(admission.queue(), IsEmpty());
}

// Of two targets: even ids can run on one of them only, odd ones on the other.
TEST(AdmissionTest, WhoWasPassedKeepsOnlyItsOwnTargetFree) {
  Admission admission;
  bool is_kept[2] = {false, false};
  bool is_free[2] = {false, true};
  const auto pop = [&] {
    is_kept[0] = is_kept[1] = false;
    return admission.Pop(
        [&](uint64_t id) { return is_free[id % 2] && !is_kept[id % 2]; },
        [&](uint64_t id) { is_kept[id % 2] = true; });
  };
  Push(admission, 2);
  for (uint64_t id = 101; id < 151; id += 2) {
    Push(admission, id);
    EXPECT_EQ(pop(), id);
  }
  Push(admission, 4);
  EXPECT_EQ(pop(), absl::nullopt);
  is_free[0] = true;
  EXPECT_EQ(pop(), 2u);
  EXPECT_EQ(pop(), 4u);
}

TEST(AdmissionTest, OnlyTheFirstOfAClassIsLookedAt) {
  Admission admission;
  for (uint64_t id = 0; id < 1000; ++id) {
    admission.Push(id, id % 2 == 0 ? "even" : "odd");
  }
  std::vector<uint64_t> asked;
  const auto pop = [&](uint64_t remainder) {
    return admission.Pop(
        [&](uint64_t id) {
          asked.push_back(id);
          return id % 2 == remainder;
        },
        [](uint64_t) {});
  };
  EXPECT_EQ(pop(1), 1u);
  EXPECT_EQ(pop(1), 3u);
  EXPECT_TRUE(admission.Remove(5));
  EXPECT_EQ(pop(1), 7u);
  EXPECT_EQ(pop(0), 0u);
  EXPECT_EQ(pop(2), absl::nullopt);
  EXPECT_THAT(asked, ElementsAre(0, 1, 0, 3, 0, 7, 0, 2, 9));
}

// What it is to do, without any index.
class PlainAdmission {
 public:
  void Push(uint64_t id) { queue_.push_back({id, 0}); }
  void Remove(uint64_t id) {
    queue_.erase(
        std::remove_if(queue_.begin(), queue_.end(),
                       [&](const auto& entry) { return entry.first == id; }),
        queue_.end());
  }
  template <typename HasRoom, typename KeepFree>
  absl::optional<uint64_t> Pop(const HasRoom& has_room,
                               const KeepFree& keep_free) {
    for (size_t i = 0; i < queue_.size(); ++i) {
      const auto [id, passes] = queue_[i];
      if (has_room(id)) {
        for (size_t passed = 0; passed < i; ++passed) ++queue_[passed].second;
        queue_.erase(queue_.begin() + static_cast<int64_t>(i));
        return id;
      }
      if (passes >= Admission::kMaxPasses) keep_free(id);
    }
    return absl::nullopt;
  }

 private:
  std::vector<std::pair<uint64_t, int>> queue_;  // id, passes
};

// Four targets; a request's id says how much it needs and where it may run.
TEST(AdmissionTest, TheOrderIsThatOfAWalkOfTheWholeQueue) {
  std::mt19937 random(5);
  Admission admission;
  PlainAdmission plain;
  uint64_t next = 0;
  std::map<uint64_t, bool> waiting;
  int popped = 0;
  int kept_any = 0;
  for (int round = 0; round < 20'000; ++round) {
    if (random() % 3 != 0) {
      const uint64_t id = next++ * 16 + random() % 16;
      admission.Push(id, absl::StrCat(id % 16));
      plain.Push(id);
      waiting[id] = true;
    }
    if (!waiting.empty() && random() % 40 == 0) {
      auto it = waiting.begin();
      std::advance(it, random() % waiting.size());
      EXPECT_TRUE(admission.Remove(it->first));
      plain.Remove(it->first);
      waiting.erase(it);
    }
    uint64_t room[4];
    // Mostly too little for the greatest needs.
    for (uint64_t& each : room) each = random() % (random() % 50 == 0 ? 5 : 3);
    const auto pop = [&](auto& queue) {
      bool kept[4] = {};
      return queue.Pop(
          [&](uint64_t id) {
            return !kept[id % 4] && room[id % 4] > id / 4 % 4;
          },
          [&](uint64_t id) {
            kept[id % 4] = true;
            ++kept_any;
          });
    };
    const absl::optional<uint64_t> id = pop(admission);
    ASSERT_EQ(id, pop(plain)) << round;
    if (id.has_value()) {
      ++popped;
      waiting.erase(*id);
    }
  }
  EXPECT_GT(popped, 500);
  EXPECT_GT(kept_any, 5'000);
}

TEST(AdmissionTest, ThoseAheadStartBeforeTheOthers) {
  Admission admission;
  admission.Push(1, "a");
  admission.Push(2, "b");
  admission.Push(3, "a", /*ahead=*/true);
  admission.Push(4, "c", /*ahead=*/true);
  admission.Push(5, "a");
  EXPECT_THAT(admission.queue(), ElementsAre(3, 4, 1, 2, 5));
  EXPECT_EQ(admission.PlaceOf(3), 0);
  EXPECT_EQ(admission.PlaceOf(4), 1);
  EXPECT_EQ(admission.PlaceOf(1), 2);
  EXPECT_EQ(admission.PlaceOf(5), 4);
  EXPECT_EQ(Pop(admission, kAlways), 3u);
  EXPECT_EQ(Pop(admission, kAlways), 4u);
  admission.Push(6, "a", /*ahead=*/true);
  EXPECT_EQ(Pop(admission, kAlways), 6u);
  EXPECT_EQ(Pop(admission, kAlways), 1u);
  EXPECT_EQ(Pop(admission, kAlways), 2u);
  EXPECT_EQ(Pop(admission, kAlways), 5u);
}

// One that is behind another of its class may leave meanwhile.
TEST(AdmissionTest, OneThatIsAheadIsTheFirstOfItsClass) {
  Admission admission;
  admission.Push(1, "a");
  admission.Push(2, "b");
  admission.Push(3, "a", /*ahead=*/true);
  std::vector<uint64_t> asked;
  const auto look = [&] {
    asked.clear();
    EXPECT_EQ(admission.Pop(
                  [&](uint64_t id) {
                    asked.push_back(id);
                    return false;
                  },
                  [](uint64_t) {}),
              absl::nullopt);
    return asked;
  };
  EXPECT_THAT(look(), ElementsAre(3, 2));
  EXPECT_TRUE(admission.Remove(1));
  EXPECT_THAT(look(), ElementsAre(3, 2));
  EXPECT_TRUE(admission.Remove(3));
  EXPECT_THAT(look(), ElementsAre(2));
}

TEST(AdmissionTest, NoOtherPassesOneThatIsAhead) {
  Admission admission;
  Push(admission, 7);
  admission.Push(1, "large", /*ahead=*/true);
  // There is room for 7 only, which 1 could use some day.
  EXPECT_EQ(Pop(admission, /*least_small=*/5), absl::nullopt);
  EXPECT_TRUE(admission.Remove(1));
  EXPECT_EQ(Pop(admission, /*least_small=*/5), 7u);
}

}  // namespace
}  // namespace nacre::coordinator
