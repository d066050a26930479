#include "coordinator/dispatch/failover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int64_t kTimeoutNs = 10 * Failover::kRetryNs;
constexpr uint64_t kSession = 5;

class FailoverRulesTest : public ::testing::Test {
 protected:
  FailoverRulesTest() {
    auto request = std::make_shared<RequestSpec>();
    request->prompt_ids = {1, 2};
    request->max_tokens = 30;
    record_.request = std::move(request);
    record_.Bind(Info());
  }
  static WorkerInfo Info(int64_t kv_tokens = 32) {
    WorkerInfo info;
    info.role = WorkerRole::kTarget;
    info.address = "there";
    info.fingerprint = "big";
    info.numerics_id = "n";
    info.eos_token_ids = {3};
    info.kv_capacity_tokens = kv_tokens;
    return info;
  }
  uint64_t Add(WorkerInfo info = Info()) {
    return fleet_.Add(std::move(info)).value();
  }
  // Another session takes all its room.
  void Fill(uint64_t target) {
    fleet_.Seat(target, 100 + target, 32, /*follows_load=*/false);
  }
  Failover::Decision Decide(int64_t now_ns) {
    return failover_.Decide(kSession, /*generated=*/7, now_ns);
  }
  std::string EndAt(int64_t now_ns) {
    const absl::Status end = Decide(now_ns).end;
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
    return std::string(end.message());
  }

  Fleet fleet_;
  Placer placer_{&fleet_, /*patience_ns=*/kTimeoutNs};
  Failover failover_{&fleet_, &placer_, kTimeoutNs};
  FailoverRecord record_;
};

TEST_F(FailoverRulesTest, OnlyATargetOfTheSameBitsWillDo) {
  WorkerInfo other_bits = Info();
  other_bits.numerics_id = "m";
  Add(other_bits);
  WorkerInfo draft = Info();
  draft.role = WorkerRole::kDraft;
  Add(draft);
  EXPECT_EQ(failover_.EqualTarget(record_, {}), 0u);
  const uint64_t small = Add(Info(16));
  EXPECT_EQ(failover_.EqualTarget(record_, {}), 0u);
  const uint64_t equal = Add();
  EXPECT_EQ(failover_.EqualTarget(record_, {}), equal);
  EXPECT_EQ(failover_.EqualTarget(record_, {equal}), 0u);
  record_.refused_by = {equal};
  EXPECT_EQ(failover_.EqualTarget(record_, {}), 0u);
  record_.refused_by.clear();
  fleet_.at(equal).ready = false;
  EXPECT_EQ(failover_.EqualTarget(record_, {}), 0u);
  EXPECT_NE(small, equal);
}

TEST_F(FailoverRulesTest, OtherEndTokensAreAnotherTarget) {
  WorkerInfo other_ends = Info();
  other_ends.eos_token_ids = {4};
  record_.Bind(other_ends);
  Add();
  EXPECT_EQ(failover_.EqualTarget(record_, {}), 0u);
}

TEST_F(FailoverRulesTest, AHeldSessionGoesOnOrEndsInTime) {
  failover_.Hold(kSession, &record_, "target worker x was lost", 1000);
  EXPECT_THAT(failover_.held(), ElementsAre(kSession));
  EXPECT_EQ(Decide(1000).target_id, 0u);
  EXPECT_TRUE(Decide(1000).end.ok());
  EXPECT_EQ(Decide(1000).wake_ns, 1000 + kTimeoutNs);
  const std::string end = EndAt(1000 + kTimeoutNs);
  EXPECT_THAT(end, HasSubstr("target worker x was lost after 7 tokens"));
  EXPECT_THAT(end, HasSubstr("numerics_id n had room within 10s"));
  const uint64_t target = Add();
  EXPECT_EQ(Decide(1000 + kTimeoutNs).target_id, target);
  failover_.Release(kSession);
  EXPECT_TRUE(failover_.held().empty());
}

TEST_F(FailoverRulesTest, ARequestThatKillsItsTargetsEnds) {
  Add();
  record_.num_losses = Failover::kMaxLossesInARow;
  failover_.Hold(kSession, &record_, "it was lost", 1000);
  EXPECT_NE(Decide(1000).target_id, 0u);
  ++record_.num_losses;
  EXPECT_THAT(EndAt(1000), HasSubstr("6 targets in a row were lost"));
  record_.OnProgress();
  EXPECT_NE(Decide(1000).target_id, 0u);
  EXPECT_EQ(record_.give_up_ns, kNever);
}

// Not only one that had been running: it was placed by what the target said.
TEST_F(FailoverRulesTest, WithoutTheRoomThatWasSaidASessionWaits) {
  const uint64_t full = Add();
  const absl::Status no_room = absl::ResourceExhaustedError("no room");
  EXPECT_TRUE(failover_.MayGoOn(&record_, full, no_room));
  EXPECT_THAT(record_.refused_by, UnorderedElementsAre(full));
  EXPECT_TRUE(record_.failed_on.empty());
}

TEST_F(FailoverRulesTest, AForgottenSessionGoesOnAnyOtherFailureEnds) {
  const uint64_t target = Add();
  EXPECT_TRUE(
      failover_.MayGoOn(&record_, target, absl::AbortedError("forgotten")));
  EXPECT_FALSE(failover_.MayGoOn(&record_, target,
                                 absl::InvalidArgumentError("a bad prompt")));
}

// A full one is sound, too: it will have room.
TEST_F(FailoverRulesTest, AfterAFailedDeviceAnotherMustBeSound) {
  const absl::Status failed = absl::InternalError("its device failed");
  const uint64_t first = Add();
  EXPECT_FALSE(failover_.MayGoOn(&record_, first, failed));
  EXPECT_THAT(record_.failed_on, UnorderedElementsAre(first));
  const uint64_t second = Add();
  Fill(second);
  EXPECT_TRUE(failover_.MayGoOn(&record_, first, failed));
  fleet_.at(second).ready = false;
  EXPECT_FALSE(failover_.MayGoOn(&record_, first, failed));
}

TEST_F(FailoverRulesTest, RefusersAreAskedAgainButNotFailedDevices) {
  const uint64_t full = Add();
  const uint64_t broken = Add();
  record_.failed_on = record_.refused_by = {broken};
  const absl::Status no_room = absl::ResourceExhaustedError("no room");
  ASSERT_TRUE(failover_.MayGoOn(&record_, full, no_room));
  failover_.HoldRefused(kSession, &record_, full, no_room, 1000);
  EXPECT_EQ(record_.num_losses, 0);
  EXPECT_EQ(record_.reason, "target worker there gave it up: no room");
  EXPECT_EQ(Decide(1000).wake_ns, 1000 + Failover::kRetryNs);
  EXPECT_EQ(Decide(1000).target_id, 0u);
  EXPECT_EQ(Decide(1000 + Failover::kRetryNs).target_id, full);
  EXPECT_THAT(record_.refused_by, UnorderedElementsAre(broken));
}

TEST_F(FailoverRulesTest, ARefusalDoesNotProlongTheWait) {
  const uint64_t target = Add();
  failover_.Hold(kSession, &record_, "it was lost", 1000);
  failover_.Release(kSession);
  const int64_t late_ns = 1000 + kTimeoutNs - 1;
  const absl::Status status = absl::AbortedError("forgotten");
  ASSERT_TRUE(failover_.MayGoOn(&record_, target, status));
  failover_.HoldRefused(kSession, &record_, target, status, late_ns);
  EXPECT_EQ(record_.num_losses, 1);
  EXPECT_EQ(record_.give_up_ns, 1000 + kTimeoutNs);
  EXPECT_EQ(record_.retry_ns, 1000 + kTimeoutNs);  // a last time at the end
  EXPECT_EQ(Decide(late_ns).wake_ns, 1000 + kTimeoutNs);
}

TEST_F(FailoverRulesTest, TargetsWithoutRoomAreKeptForHeldSessions) {
  const uint64_t full = Add();
  Fill(full);
  const uint64_t refuser = Add();
  Add(Info(16));  // too small for it
  EXPECT_TRUE(failover_.KeptForHeld().empty());
  failover_.Hold(kSession, &record_, "it was lost", 1000);
  record_.refused_by = {refuser};
  EXPECT_THAT(failover_.KeptForHeld(), UnorderedElementsAre(full));
}

}  // namespace
}  // namespace nacre::coordinator
