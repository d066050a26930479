#include "coordinator/fleet/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FleetTest : public ::testing::Test {
 protected:
  static WorkerInfo Info(WorkerRole role, const std::string& fingerprint) {
    WorkerInfo info;
    info.role = role;
    info.address = "here";
    info.fingerprint = fingerprint;
    info.kv_capacity_tokens = 64;
    return info;
  }
  uint64_t Add(WorkerInfo info) { return fleet_.Add(std::move(info)).value(); }
  uint64_t AddTarget(const std::string& fingerprint = "big") {
    return Add(Info(WorkerRole::kTarget, fingerprint));
  }
  uint64_t AddDraft(bool abandons_steps = false) {
    WorkerInfo info = Info(WorkerRole::kDraft, "small");
    info.abandons_steps = abandons_steps;
    info.step_times_ns = {{1, 100}, {2, 150}};
    return Add(std::move(info));
  }
  static SpanRecord Span(SpanRecord::Kind kind, int64_t start_ns,
                         int64_t duration_ns) {
    SpanRecord span;
    span.kind = kind;
    span.start_ns = start_ns;
    span.duration_ns = duration_ns;
    span.rows = span.batch_rows = 1;
    return span;
  }

  Fleet fleet_;
};

TEST_F(FleetTest, IdsRiseAndAreNotUsedAgain) {
  EXPECT_EQ(AddTarget(), 1u);
  EXPECT_EQ(AddDraft(), 2u);
  fleet_.Remove(2);
  EXPECT_EQ(fleet_.Find(2), nullptr);
  EXPECT_EQ(AddDraft(), 3u);
  EXPECT_EQ(fleet_.workers().size(), 2u);
  EXPECT_THAT(fleet_.drafts(), ElementsAre(&fleet_.Find(3)->info));
}

TEST_F(FleetTest, TargetsInServiceHoldOneModel) {
  const uint64_t first = AddTarget("big");
  const absl::Status status =
      fleet_.Add(Info(WorkerRole::kTarget, "bigger")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("bigger"));
  EXPECT_EQ(fleet_.workers().size(), 1u);
  fleet_.Remove(first);
  EXPECT_TRUE(fleet_.Add(Info(WorkerRole::kTarget, "bigger")).ok());
}

TEST_F(FleetTest, AnotherModelForgetsWhatTokensWereWorth) {
  const uint64_t draft = AddDraft();
  const uint64_t target = AddTarget("big");
  fleet_.at(draft).acceptance.Add(/*verified=*/100, /*accepted=*/0);
  const double learnt = fleet_.at(draft).acceptance.alpha();
  EXPECT_LT(learnt, 0.1);
  const double prior = fleet_.at(draft).ranks.alpha();
  for (int i = 0; i < 100; ++i) fleet_.at(draft).ranks.Add(/*rank=*/2);
  const double ranks_learnt = fleet_.at(draft).ranks.alpha();
  EXPECT_LT(ranks_learnt, prior);
  AddTarget("big");
  EXPECT_EQ(fleet_.at(draft).acceptance.alpha(), learnt);
  EXPECT_EQ(fleet_.at(draft).ranks.alpha(), ranks_learnt);
  fleet_.Remove(target);
  fleet_.Remove(target + 1);
  AddTarget("bigger");
  EXPECT_EQ(fleet_.at(draft).acceptance.alpha(),
            speculation::AcceptanceEstimator().alpha());
  EXPECT_EQ(fleet_.at(draft).ranks.alpha(), prior);
}

TEST_F(FleetTest, KvStaysPromisedUntilTheWorkerHasClosed) {
  const uint64_t target = AddTarget();
  fleet_.Seat(target, /*session_id=*/5, /*need=*/48, /*follows_load=*/true);
  EXPECT_EQ(fleet_.at(target).async_sessions, 1);
  EXPECT_TRUE(fleet_.at(target).sessions.contains(5));
  EXPECT_FALSE(fleet_.ledger().HasRoom(target, 32));
  fleet_.Unseat(target, 5, /*follows_load=*/true);
  EXPECT_EQ(fleet_.at(target).async_sessions, 0);
  EXPECT_TRUE(fleet_.at(target).sessions.empty());
  EXPECT_FALSE(fleet_.ledger().HasRoom(target, 32));
  EXPECT_EQ(fleet_.Release(target, 5), WorkerRole::kTarget);
  EXPECT_TRUE(fleet_.ledger().HasRoom(target, 32));
  EXPECT_EQ(fleet_.Release(target, 5), absl::nullopt);
}

TEST_F(FleetTest, AWorkersRoomLeavesWithIt) {
  const uint64_t target = AddTarget();
  fleet_.Seat(target, 5, 48, /*follows_load=*/false);
  EXPECT_EQ(fleet_.at(target).async_sessions, 0);
  fleet_.Unseat(target, 5, /*follows_load=*/false);
  fleet_.Remove(target);
  EXPECT_EQ(fleet_.Release(target, 5), absl::nullopt);
}

TEST_F(FleetTest, AStepsCostsAreItsWorkers) {
  const uint64_t target = AddTarget();
  const uint64_t draft = AddDraft(/*abandons_steps=*/true);
  for (uint64_t session : {5, 6, 7}) {
    fleet_.Seat(target, session, 0, /*follows_load=*/session != 7);
  }
  fleet_.Seat(draft, 5, 0, /*follows_load=*/true);
  EXPECT_EQ(fleet_.at(draft).async_sessions, 0);  // is counted of targets
  speculation::StepCosts costs =
      fleet_.CostsOn(target, draft, /*follows_load=*/true);
  EXPECT_EQ(costs.target, fleet_.at(target).step_times.get());
  EXPECT_EQ(costs.other_sessions, 2);
  EXPECT_EQ(costs.other_async_sessions, 1);
  EXPECT_EQ(costs.draft_token_ns, 100);
  EXPECT_TRUE(costs.abandons_steps);
  fleet_.Seat(draft, 6, 0, /*follows_load=*/true);
  costs = fleet_.CostsOn(target, draft, /*follows_load=*/false);
  EXPECT_EQ(costs.other_async_sessions, 2);
  EXPECT_EQ(costs.draft_token_ns, 150);
  EXPECT_FALSE(costs.abandons_steps);  // it goes on for the other one
  costs = fleet_.CostsOn(0, 0, /*follows_load=*/true);
  EXPECT_EQ(costs.target, nullptr);
  EXPECT_EQ(costs.draft_token_ns, 0);
}

TEST_F(FleetTest, AStepIsTimedOnce) {
  FleetWorker& target = fleet_.at(AddTarget());
  target.OnSpan(Span(SpanRecord::Kind::kDraft, 10, 700));
  EXPECT_TRUE(target.step_times->empty());
  target.OnSpan(Span(SpanRecord::Kind::kVerify, 10, 500));
  EXPECT_EQ(target.step_times->At(1), 500);
  target.OnSpan(Span(SpanRecord::Kind::kVerify, 10, 900));  // the same step
  EXPECT_EQ(target.step_times->At(1), 500);

  FleetWorker& draft = fleet_.at(AddDraft());
  SpanRecord cut_short = Span(SpanRecord::Kind::kDraft, 10, 1);
  cut_short.abandoned = true;
  draft.OnSpan(cut_short);
  EXPECT_EQ(draft.step_times->At(1), 100);
}

TEST_F(FleetTest, WorkersAreInOrderOfTheirSessions) {
  using Entry = std::pair<size_t, uint64_t>;
  const uint64_t first = AddTarget();
  const uint64_t draft = AddDraft();
  const uint64_t second = AddTarget();
  const auto targets = [&] { return fleet_.by_load(WorkerRole::kTarget); };
  EXPECT_THAT(targets(), ElementsAre(Entry(0, first), Entry(0, second)));
  EXPECT_THAT(fleet_.by_load(WorkerRole::kDraft), ElementsAre(Entry(0, draft)));
  fleet_.Seat(first, 7, 0, false);
  EXPECT_THAT(targets(), ElementsAre(Entry(0, second), Entry(1, first)));
  fleet_.Seat(second, 8, 0, false);
  fleet_.Seat(second, 9, 0, false);
  EXPECT_THAT(targets(), ElementsAre(Entry(1, first), Entry(2, second)));
  fleet_.Unseat(second, 8, false);
  fleet_.Unseat(second, 9, false);
  fleet_.Unseat(second, 9, false);  // it has left
  EXPECT_THAT(targets(), ElementsAre(Entry(0, second), Entry(1, first)));
  fleet_.Remove(first);
  EXPECT_THAT(targets(), ElementsAre(Entry(0, second)));
}

TEST_F(FleetTest, KnowsWhichWorkersDrain) {
  const uint64_t first = AddTarget();
  const uint64_t second = AddDraft();
  fleet_.SetReady(first, false);
  fleet_.SetReady(second, false);
  EXPECT_FALSE(fleet_.at(first).ready);
  EXPECT_THAT(fleet_.draining(), ElementsAre(first, second));
  fleet_.SetReady(first, true);
  EXPECT_TRUE(fleet_.at(first).ready);
  EXPECT_THAT(fleet_.draining(), ElementsAre(second));
  fleet_.Remove(second);
  EXPECT_TRUE(fleet_.draining().empty());
}

TEST_F(FleetTest, TheCellShowsReadinessAndSessions) {
  const uint64_t target = AddTarget();
  FleetWorker& worker = fleet_.at(target);
  EXPECT_TRUE(worker.cell->ready);
  worker.ready = false;
  EXPECT_FALSE(worker.cell->ready);
  fleet_.Seat(target, 9, 0, false);
  fleet_.Seat(target, 3, 0, false);
  EXPECT_EQ(worker.cell->sessions, 2);
  EXPECT_THAT(worker.sessions.InOrder(), ElementsAre(3, 9));
}

TEST_F(FleetTest, AGrantSaysHowMuchIsOursAndHowManyAreOthers) {
  using Entry = std::pair<size_t, uint64_t>;
  WorkerInfo info = Info(WorkerRole::kTarget, "big");
  info.grants_kv = true;
  const uint64_t shared = Add(std::move(info));
  const uint64_t own = AddTarget();
  EXPECT_THAT(fleet_.granting(), ElementsAre(shared));
  EXPECT_FALSE(fleet_.ledger().HasRoom(shared, 16));
  EXPECT_TRUE(fleet_.SetGrant(shared, /*serial=*/3, 48, /*other_sessions=*/2));
  EXPECT_EQ(fleet_.at(shared).grant_serial, 3u);
  EXPECT_EQ(fleet_.at(shared).load(), 2u);
  EXPECT_THAT(fleet_.by_load(WorkerRole::kTarget),
              ElementsAre(Entry(0, own), Entry(2, shared)));
  EXPECT_FALSE(fleet_.SetGrant(shared, 4, 48, 0));  // as much
  EXPECT_THAT(fleet_.by_load(WorkerRole::kTarget),
              ElementsAre(Entry(0, shared), Entry(0, own)));
  EXPECT_FALSE(fleet_.SetGrant(shared, 5, 32, 0));  // less
  EXPECT_EQ(fleet_.ledger().granted_tokens(shared), 32);
  EXPECT_TRUE(fleet_.SetGrant(shared, 6, 1000, 0));
  EXPECT_FALSE(fleet_.SetGrant(shared, 7, 2000, 0));  // all there is
  fleet_.Remove(shared);
  EXPECT_TRUE(fleet_.granting().empty());
}

TEST_F(FleetTest, OthersSessionsAreACrowdToo) {
  const uint64_t target = AddTarget();
  WorkerInfo info = Info(WorkerRole::kDraft, "small");
  info.abandons_steps = info.grants_kv = true;
  info.step_times_ns = {{1, 100}, {2, 150}, {3, 180}};
  const uint64_t draft = Add(std::move(info));
  fleet_.Seat(target, 5, 0, false);
  fleet_.Seat(draft, 5, 0, false);
  EXPECT_TRUE(fleet_.CostsOn(target, draft, false).abandons_steps);
  fleet_.SetGrant(draft, 1, 64, /*other_sessions=*/1);
  const speculation::StepCosts costs = fleet_.CostsOn(target, draft, false);
  EXPECT_FALSE(costs.abandons_steps);
  EXPECT_EQ(costs.draft_token_ns, 150);
  ASSERT_EQ(speculation::kDraftRowChoices[0], 1);
  EXPECT_EQ(costs.draft_rows_ns[0], 150);
  ASSERT_EQ(speculation::kDraftRowChoices[1], 2);
  EXPECT_EQ(costs.draft_rows_ns[1], 180);
  EXPECT_EQ(costs.other_sessions, 0);
}

TEST_F(FleetTest, ADraftThatHasNotSaidHowFastItIsCostsNothingYet) {
  const uint64_t draft = Add(Info(WorkerRole::kDraft, "small"));
  fleet_.Seat(draft, 5, 0, false);
  EXPECT_EQ(fleet_.CostsOn(0, draft, false).draft_token_ns, 0);
  // The number of its sessions is the same, what it costs is not.
  fleet_.at(draft).AddStepTime(1, 100);
  EXPECT_EQ(fleet_.CostsOn(0, draft, false).draft_token_ns, 100);
  FleetWorker& worker = fleet_.at(draft);
  for (int i = 0; i < 200; ++i) worker.AddStepTime(1, 300);
  EXPECT_NEAR(fleet_.CostsOn(0, draft, false).draft_token_ns, 300, 1);
}

TEST_F(FleetTest, RemovingWhoIsNotThereChangesNothing) {
  const uint64_t target = AddTarget();
  fleet_.Remove(target + 1);
  EXPECT_EQ(fleet_.workers().size(), 1u);
  EXPECT_EQ(fleet_.ledger().capacity_tokens(target), 64);
  fleet_.Remove(target);
  fleet_.Remove(target);
  EXPECT_TRUE(fleet_.workers().empty());
}

}  // namespace
}  // namespace nacre::coordinator
