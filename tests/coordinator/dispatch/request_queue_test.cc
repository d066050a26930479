#include "coordinator/dispatch/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/dispatch/answer.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kTimeoutNs = 1000;

class RequestQueueTest : public ::testing::Test {
 protected:
  uint64_t AddTarget(int64_t kv_tokens, const std::string& numerics = "n") {
    WorkerInfo info;
    info.role = WorkerRole::kTarget;
    info.fingerprint = "big";
    info.numerics_id = numerics;
    info.kv_capacity_tokens = kv_tokens;
    return fleet_.Add(std::move(info)).value();
  }
  // A request that needs so many tokens of KV.
  void Push(uint64_t id, int tokens, int64_t since_ns = 0,
            const std::string& numerics = "", bool resumes = false) {
    auto request = std::make_shared<RequestSpec>();
    request->prompt_ids = {1, 2};
    request->max_tokens = tokens - 2;
    request->numerics_id = numerics;
    if (resumes) {
      request->resume = std::make_shared<const std::vector<ResumedChoice>>(1);
    }
    WaitingRequest waiting;
    waiting.cell = std::make_shared<SessionCell>();
    waiting.cell->request = std::move(request);
    waiting.since_ns = since_ns;
    queue_.Push(id, std::move(waiting));
  }
  // Choices of one call, with ids from `id` on.
  void PushCall(uint64_t id, int choices, int tokens) {
    const auto call = std::make_shared<CallPlacement>();
    call->num_started = choices;
    for (int i = 0; i < choices; ++i) {
      auto request = std::make_shared<RequestSpec>();
      request->prompt_ids = {1, 2};
      request->max_tokens = tokens - 2;
      request->call = call;
      WaitingRequest waiting;
      waiting.cell = std::make_shared<SessionCell>();
      waiting.cell->request = std::move(request);
      queue_.Push(id + static_cast<uint64_t>(i), std::move(waiting));
    }
  }
  // Starts all that may, as the dispatcher does; their ids.
  std::vector<uint64_t> StartAll(const WorkerIds& kept = {}) {
    std::vector<uint64_t> ids;
    RequestQueue::Pass pass(&queue_, kept);
    while (const auto start = pass.Next()) {
      if (const auto& call = start->waiting.request().call) {
        call->numerics_id = fleet_.at(start->target_id).info.numerics_id;
      }
      ids.push_back(start->session_id);
      targets_.push_back(start->target_id);
      fleet_.Seat(start->target_id, start->session_id,
                  Placer::TargetNeed(start->waiting.request()),
                  /*follows_load=*/false);
    }
    return ids;
  }

  static constexpr int kMaxRunning = 3;

  Fleet fleet_{kMaxRunning};
  Placer placer_{&fleet_, /*patience_ns=*/kTimeoutNs};
  RequestQueue queue_{&fleet_, &placer_, kTimeoutNs};
  std::vector<uint64_t> targets_;
};

TEST_F(RequestQueueTest, StartsInOrderAsFarAsThereIsRoom) {
  const uint64_t target = AddTarget(64);
  Push(7, 32);
  Push(8, 32);
  Push(9, 32);
  EXPECT_EQ(queue_.size(), 3);
  EXPECT_THAT(StartAll(), ElementsAre(7, 8));
  EXPECT_THAT(targets_, ElementsAre(target, target));
  EXPECT_FALSE(queue_.contains(7));
  EXPECT_TRUE(queue_.contains(9));
  EXPECT_THAT(queue_.ids(), ElementsAre(9));
  EXPECT_EQ(queue_.request(9).max_tokens, 30);
}

TEST_F(RequestQueueTest, ATargetRunsNoMoreThanItMay) {
  const uint64_t target = AddTarget(0);
  for (uint64_t id = 1; id <= 8; ++id) Push(id, 32);
  EXPECT_THAT(StartAll(), ElementsAre(1, 2, 3));
  EXPECT_THAT(StartAll(), IsEmpty());
  // It has heard of the end, and has not closed the session yet.
  fleet_.Unseat(target, 1, /*follows_load=*/false);
  EXPECT_THAT(StartAll(), IsEmpty());
  fleet_.Release(target, 1);
  EXPECT_THAT(StartAll(), ElementsAre(4));
  // Another has a number of its own.
  const uint64_t other = AddTarget(0);
  EXPECT_THAT(StartAll(), ElementsAre(5, 6, 7));
  EXPECT_THAT(targets_,
              ElementsAre(target, target, target, target, other, other, other));
}

// One that waits for KV keeps its turn before those that wait for a place.
TEST_F(RequestQueueTest, APlaceIsOfNoUseWithoutKvNorKvWithoutAPlace) {
  const uint64_t target = AddTarget(128);
  for (uint64_t id = 1; id <= 3; ++id) Push(id, 32);
  EXPECT_THAT(StartAll(), ElementsAre(1, 2, 3));
  Push(4, 16);  // KV alone would do
  EXPECT_THAT(StartAll(), IsEmpty());
  Push(5, 64);
  fleet_.Release(target, 1);
  EXPECT_THAT(StartAll(), ElementsAre(4));
  fleet_.Release(target, 4);
  EXPECT_THAT(StartAll(), ElementsAre(5));
}

TEST_F(RequestQueueTest, ASmallOnePassesALargeOneThatHasNoRoom) {
  AddTarget(64);
  fleet_.Seat(1, 100, 32, /*follows_load=*/false);
  Push(7, 64);
  Push(8, 32);
  EXPECT_THAT(StartAll(), ElementsAre(8));
  EXPECT_THAT(queue_.ids(), ElementsAre(7));
}

TEST_F(RequestQueueTest, WhatIsKeptFreeStaysFree) {
  const uint64_t kept = AddTarget(64);
  Push(7, 32);
  EXPECT_THAT(StartAll({kept}), IsEmpty());
  const uint64_t other = AddTarget(64);
  EXPECT_THAT(StartAll({kept}), ElementsAre(7));
  EXPECT_THAT(targets_, ElementsAre(other));
}

// After kMaxPasses others the large one's targets take nothing before it.
TEST_F(RequestQueueTest, ALargeRequestIsNotPassedForEver) {
  const uint64_t target = AddTarget(64);
  fleet_.Seat(target, 100, 16, /*follows_load=*/false);
  Push(1, 64);
  for (uint64_t id = 2; id < 2 + Admission::kMaxPasses; ++id) {
    Push(id, 32);
    EXPECT_THAT(StartAll(), ElementsAre(id));
    fleet_.Unseat(target, id, /*follows_load=*/false);
    fleet_.Release(target, id);
  }
  Push(50, 32);
  EXPECT_THAT(StartAll(), IsEmpty());
  // Elsewhere, where the large one could not run, small ones start.
  const uint64_t small = AddTarget(32);
  EXPECT_THAT(StartAll(), ElementsAre(50));
  EXPECT_EQ(targets_.back(), small);
  fleet_.Release(target, 100);
  EXPECT_THAT(StartAll(), ElementsAre(1));
}

TEST_F(RequestQueueTest, KindsOfTargetsAreAskedApart) {
  const uint64_t a = AddTarget(64, "a");
  const uint64_t b = AddTarget(64, "b");
  fleet_.Seat(a, 100, 64, /*follows_load=*/false);
  Push(7, 32, 0, "a");  // in vain, which says nothing of the other kind
  Push(8, 32, 0, "b");
  EXPECT_THAT(StartAll(), ElementsAre(8));
  EXPECT_THAT(targets_, ElementsAre(b));
}

// What a call asks for in vain, one request may still find elsewhere.
TEST_F(RequestQueueTest, ACallThatWaitsForAWideKindHoldsUpNoOther) {
  const uint64_t narrow = AddTarget(32, "a");
  const uint64_t wide = AddTarget(64, "b");
  fleet_.Seat(wide, 100, 64, /*follows_load=*/false);
  PushCall(7, 2, 32);
  PushCall(9, 2, 32);
  Push(11, 32);
  EXPECT_THAT(StartAll(), ElementsAre(11));
  EXPECT_THAT(targets_, ElementsAre(narrow));
  fleet_.Release(wide, 100);
  EXPECT_THAT(StartAll(), ElementsAre(7, 8));
  EXPECT_THAT(targets_, ElementsAre(narrow, wide, wide));
}

// However often it is passed, it keeps free what it may start on only.
TEST_F(RequestQueueTest, ACallKeepsNoNarrowKindFree) {
  const uint64_t narrow = AddTarget(32, "a");
  const uint64_t wide = AddTarget(64, "b");
  fleet_.Seat(wide, 100, 48, /*follows_load=*/false);
  PushCall(1, 2, 32);
  for (uint64_t id = 10; id < 10 + 2 * Admission::kMaxPasses; ++id) {
    Push(id, 32);
    EXPECT_THAT(StartAll(), ElementsAre(id));
    EXPECT_EQ(targets_.back(), narrow);
    fleet_.Unseat(narrow, id, /*follows_load=*/false);
    fleet_.Release(narrow, id);
  }
  // Where it may start nothing passes it any more.
  Push(50, 32);
  Push(51, 16);
  EXPECT_THAT(StartAll(), ElementsAre(50));
  EXPECT_EQ(targets_.back(), narrow);
  fleet_.Release(wide, 100);
  EXPECT_THAT(StartAll(), ElementsAre(1, 2));
}

TEST_F(RequestQueueTest, OneThatLeavesIsGone) {
  Push(7, 32);
  Push(8, 48);
  EXPECT_EQ(queue_.Leave(7).request().max_tokens, 30);
  EXPECT_FALSE(queue_.contains(7));
  EXPECT_THAT(queue_.ids(), ElementsAre(8));
  AddTarget(64);
  EXPECT_THAT(StartAll(), ElementsAre(8));
}

TEST_F(RequestQueueTest, TheFirstTimesOutFirst) {
  EXPECT_EQ(queue_.next_timeout_ns(), kNever);
  EXPECT_EQ(queue_.TimedOut(kNever - 1), absl::nullopt);
  Push(7, 32, 100);
  Push(8, 32, 200);
  EXPECT_EQ(queue_.next_timeout_ns(), 1100);
  EXPECT_EQ(queue_.TimedOut(1099), absl::nullopt);
  EXPECT_EQ(queue_.TimedOut(1100), 7u);
  queue_.Leave(7);
  EXPECT_EQ(queue_.TimedOut(1100), absl::nullopt);
  EXPECT_EQ(queue_.next_timeout_ns(), 1200);
}

TEST_F(RequestQueueTest, AResumedOneIsFirstButWaitsNoLongerThanOthers) {
  AddTarget(32);
  Push(7, 32, /*since_ns=*/10);
  Push(8, 32, /*since_ns=*/20);
  Push(9, 32, /*since_ns=*/30, "n", /*resumes=*/true);
  EXPECT_THAT(queue_.ids(), ElementsAre(9, 7, 8));
  EXPECT_EQ(queue_.next_timeout_ns(), 10 + kTimeoutNs);
  EXPECT_EQ(queue_.TimedOut(10 + kTimeoutNs), 7u);
  queue_.Leave(7);
  EXPECT_THAT(StartAll(), ElementsAre(9));
  EXPECT_EQ(queue_.next_timeout_ns(), 20 + kTimeoutNs);
  queue_.Leave(8);
  EXPECT_EQ(queue_.next_timeout_ns(), kNever);
  EXPECT_EQ(queue_.TimedOut(kNever - 1), absl::nullopt);
}

TEST_F(RequestQueueTest, KnowsWhatAllOfThemNeed) {
  EXPECT_EQ(queue_.needed_tokens(), 0);
  AddTarget(64);
  Push(7, 32);
  Push(8, 40);
  Push(9, 80);
  EXPECT_EQ(queue_.needed_tokens(), 32 + 48 + 80);
  queue_.Leave(8);
  EXPECT_EQ(queue_.needed_tokens(), 32 + 80);
  EXPECT_THAT(StartAll(), ElementsAre(7));
  EXPECT_EQ(queue_.needed_tokens(), 80);
  queue_.Leave(9);
  EXPECT_EQ(queue_.needed_tokens(), 0);
}

TEST_F(RequestQueueTest, ThePlaceIsHowManyAreBefore) {
  Push(7, 32);
  EXPECT_EQ(queue_.PlaceOf(7), 0);
  Push(8, 48);
  EXPECT_EQ(queue_.PlaceOf(8), 1);
  Push(9, 32, 0, "", /*resumes=*/true);
  EXPECT_EQ(queue_.PlaceOf(9), 0);
  Push(10, 48, 0, "", /*resumes=*/true);
  EXPECT_EQ(queue_.PlaceOf(10), 1);
  Push(11, 32);
  EXPECT_EQ(queue_.PlaceOf(11), 4);
}

TEST_F(RequestQueueTest, TheFirstThatSuitsIsFound) {
  const auto larger_than = [](int tokens) {
    return [tokens](const RequestSpec& request) {
      return request.max_tokens > tokens;
    };
  };
  EXPECT_EQ(queue_.First(larger_than(0)), absl::nullopt);
  Push(7, 32);
  Push(8, 64);
  Push(9, 96);
  EXPECT_EQ(queue_.First(larger_than(0)), 7u);
  EXPECT_EQ(queue_.First(larger_than(30)), 8u);
  EXPECT_EQ(queue_.First(larger_than(94)), absl::nullopt);
}

// What a large one asked for in vain says nothing of a smaller one.
TEST_F(RequestQueueTest, OnlyWhoNeedsAsMuchIsHopeless) {
  const uint64_t target = AddTarget(96);
  fleet_.Seat(target, 100, 48, /*follows_load=*/false);
  Push(5, 96);
  Push(6, 64);
  Push(7, 48);
  Push(8, 16);
  EXPECT_THAT(StartAll(), ElementsAre(7));
  fleet_.Release(target, 100);
  EXPECT_THAT(StartAll(), ElementsAre(8));
}

// Each needs less than the one before: none is hopeless because of that one.
TEST_F(RequestQueueTest, WhatWaitsInVainCostsNoLookAtEachTarget) {
  constexpr int kCapacity = 1 << 14;
  constexpr uint64_t kTargets = 64;
  constexpr int kCalls = 300;
  for (uint64_t i = 0; i < kTargets; ++i) {
    const uint64_t id = AddTarget(kCapacity, i % 2 == 0 ? "a" : "b");
    fleet_.Seat(id, 100000 + i, kCapacity - 16, /*follows_load=*/false);
  }
  for (int i = kCalls; i > 0; --i) {
    PushCall(static_cast<uint64_t>(1000 + 2 * i), 2, 16 * (i + 1));
    Push(static_cast<uint64_t>(10000 + i), 16 * (i + 1));
    Push(static_cast<uint64_t>(20000 + i), 16 * (i + 1), 0, "b");
  }
  EXPECT_THAT(StartAll(), IsEmpty());
  const auto scans_of_a_pass = [&] {
    const int64_t before = placer_.scans();
    StartAll();
    return placer_.scans() - before;
  };
  EXPECT_LE(scans_of_a_pass(), 16);
  // The same where each keeps targets free, as all are passed often.
  for (uint64_t id = 1; id <= Admission::kMaxPasses; ++id) Push(id, 16);
  EXPECT_EQ(StartAll().size(), size_t{Admission::kMaxPasses});
  Push(50, 16);
  EXPECT_LE(scans_of_a_pass(), 32);
  EXPECT_TRUE(queue_.contains(50)) << "all targets are kept free";
  // Which kinds are wide is asked again as the fleet changes, once for each.
  fleet_.SetReady(1, false);
  EXPECT_LE(scans_of_a_pass(), kCalls + 32);
  EXPECT_LE(scans_of_a_pass(), 32);
}

}  // namespace
}  // namespace nacre::coordinator
