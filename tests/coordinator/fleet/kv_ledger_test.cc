#include "coordinator/fleet/kv_ledger.h"

#include <gtest/gtest.h>

#include "model/kv_pool.h"

namespace nacre::coordinator {
namespace {

static_assert(KvLedger::kBlockTokens == model::KvPool::kBlockSize,
              "the ledger rounds as the workers do");

TEST(KvLedgerTest, ANeedIsWholeBlocks) {
  EXPECT_EQ(KvLedger::Need(1), 16);
  EXPECT_EQ(KvLedger::Need(16), 16);
  EXPECT_EQ(KvLedger::Need(17), 32);
  EXPECT_EQ(KvLedger::Need(int64_t{1} << 40), int64_t{1} << 40);
}

TEST(KvLedgerTest, RoomIsTakenAndGivenBack) {
  KvLedger ledger;
  ledger.AddWorker(1, 64);
  EXPECT_TRUE(ledger.Reserve(1, 10, 48));
  EXPECT_EQ(ledger.reserved_tokens(1), 48);
  EXPECT_TRUE(ledger.HasRoom(1, 16));
  EXPECT_FALSE(ledger.HasRoom(1, 32));
  EXPECT_FALSE(ledger.Reserve(1, 11, 32));
  EXPECT_EQ(ledger.reserved_tokens(1), 48);
  EXPECT_TRUE(ledger.Reserve(1, 11, 16));
  EXPECT_TRUE(ledger.Release(1, 10));
  EXPECT_EQ(ledger.reserved_tokens(1), 16);
  EXPECT_FALSE(ledger.Release(1, 10));  // repeated
  EXPECT_FALSE(ledger.Release(1, 12));  // never there
  EXPECT_TRUE(ledger.Release(1, 11));
  EXPECT_EQ(ledger.reserved_tokens(1), 0);
}

TEST(KvLedgerTest, ASessionOpenedAgainHoldsBothUntilTheFirstIsClosed) {
  KvLedger ledger;
  ledger.AddWorker(1, 64);
  ledger.AddWorker(2, 64);
  EXPECT_TRUE(ledger.Reserve(1, 10, 48));
  EXPECT_TRUE(ledger.Reserve(2, 10, 16));
  EXPECT_FALSE(ledger.Reserve(1, 10, 48));
  EXPECT_TRUE(ledger.Reserve(1, 10, 16));
  EXPECT_EQ(ledger.reserved_tokens(1), 64);
  EXPECT_TRUE(ledger.Release(1, 10));
  EXPECT_EQ(ledger.reserved_tokens(1), 16);
  EXPECT_TRUE(ledger.Release(1, 10));
  EXPECT_FALSE(ledger.Release(1, 10));
  EXPECT_EQ(ledger.reserved_tokens(2), 16);
}

TEST(KvLedgerTest, CouldHoldLooksAtTheCapacityAlone) {
  KvLedger ledger;
  ledger.AddWorker(1, 64);
  ledger.Reserve(1, 10, 64);
  EXPECT_TRUE(ledger.CouldHold(1, 64));
  EXPECT_FALSE(ledger.CouldHold(1, 80));
  EXPECT_FALSE(ledger.CouldHold(2, 16));
  EXPECT_FALSE(ledger.HasRoom(2, 16));
  EXPECT_FALSE(ledger.Reserve(2, 10, 16));
}

TEST(KvLedgerTest, MostSessionsAreThoseOfAnEmptyWorker) {
  KvLedger ledger;
  ledger.AddWorker(1, 64);
  ledger.Reserve(1, 10, 64);
  EXPECT_EQ(ledger.MostSessions(1, 16), 4);
  EXPECT_EQ(ledger.MostSessions(1, 48), 1);
  EXPECT_EQ(ledger.MostSessions(1, 80), 0);
  EXPECT_EQ(ledger.MostSessions(2, 16), 0);
  ledger.AddWorker(3, 64, /*grants=*/true, /*max_sessions=*/3);
  EXPECT_EQ(ledger.MostSessions(3, 16), 3);  // whatever it grants now
  EXPECT_EQ(ledger.MostSessions(3, 32), 2);
  ledger.AddWorker(4, 0);
  EXPECT_EQ(ledger.MostSessions(4, 16), KvLedger::kAnyNumber);
  ledger.AddWorker(5, 0, /*grants=*/false, /*max_sessions=*/2);
  EXPECT_EQ(ledger.MostSessions(5, 16), 2);
}

TEST(KvLedgerTest, AWorkerThatDoesNotTellHasRoomForAll) {
  KvLedger ledger;
  ledger.AddWorker(1, 0);
  EXPECT_TRUE(ledger.CouldHold(1, int64_t{1} << 40));
  EXPECT_TRUE(ledger.Reserve(1, 10, int64_t{1} << 40));
  EXPECT_TRUE(ledger.Reserve(1, 11, int64_t{1} << 40));
}

TEST(KvLedgerTest, ARemovedWorkerTakesItsReservationsAlong) {
  KvLedger ledger;
  ledger.AddWorker(1, 64);
  ledger.Reserve(1, 10, 64);
  ledger.RemoveWorker(1);
  EXPECT_FALSE(ledger.Release(1, 10));
  EXPECT_EQ(ledger.reserved_tokens(1), 0);
  EXPECT_EQ(ledger.capacity_tokens(1), 0);
}

TEST(KvLedger, KnowsHowOftenASessionIsOpen) {
  KvLedger ledger;
  ledger.AddWorker(1, 0);
  EXPECT_EQ(ledger.num_open(1, 7), 0);
  EXPECT_EQ(ledger.num_open(2, 7), 0);
  ledger.Reserve(1, 7, 16);
  ledger.Reserve(1, 7, 16);
  ledger.Reserve(1, 8, 16);
  EXPECT_EQ(ledger.num_open(1, 7), 2);
  ledger.Release(1, 7);
  EXPECT_EQ(ledger.num_open(1, 7), 1);
  ledger.Release(1, 7);
  EXPECT_EQ(ledger.num_open(1, 7), 0);
}

TEST(KvLedgerTest, AWorkerMayHaveALimitOfSessions) {
  KvLedger ledger;
  ledger.AddWorker(1, 0, /*grants=*/false, /*max_sessions=*/2);
  ledger.AddWorker(2, 64, /*grants=*/false, /*max_sessions=*/2);
  EXPECT_TRUE(ledger.Reserve(1, 7, 16));
  EXPECT_FALSE(ledger.is_full(1));
  // It has the first one until it says that it is closed.
  EXPECT_TRUE(ledger.Reserve(1, 7, 16));
  EXPECT_TRUE(ledger.is_full(1));
  EXPECT_FALSE(ledger.HasRoom(1, 16));
  EXPECT_FALSE(ledger.Reserve(1, 8, 16));
  EXPECT_TRUE(ledger.CouldHold(1, 16));
  EXPECT_FALSE(ledger.is_full(2));
  EXPECT_TRUE(ledger.Release(1, 7));
  EXPECT_FALSE(ledger.Release(1, 8));
  EXPECT_TRUE(ledger.Reserve(1, 8, 16));
  EXPECT_FALSE(ledger.HasRoom(1, 16));
  // The KV counts beside it.
  EXPECT_FALSE(ledger.Reserve(2, 7, 80));
  EXPECT_TRUE(ledger.Reserve(2, 7, 64));
  EXPECT_FALSE(ledger.HasRoom(2, 16));
  EXPECT_FALSE(ledger.is_full(2));
  EXPECT_FALSE(ledger.is_full(3));
}

TEST(KvLedgerTest, PromisesNoMoreThanItsGrant) {
  KvLedger ledger;
  ledger.AddWorker(1, 160, /*grants=*/true);
  EXPECT_FALSE(ledger.HasRoom(1, 16));
  EXPECT_TRUE(ledger.CouldHold(1, 160));
  ledger.SetGrant(1, 64);
  EXPECT_EQ(ledger.granted_tokens(1), 64);
  EXPECT_TRUE(ledger.Reserve(1, 7, 48));
  EXPECT_FALSE(ledger.HasRoom(1, 32));
  // What is promised stays, and is more than may be now.
  ledger.SetGrant(1, 32);
  EXPECT_EQ(ledger.reserved_tokens(1), 48);
  EXPECT_FALSE(ledger.HasRoom(1, 16));
  EXPECT_TRUE(ledger.Release(1, 7));
  EXPECT_TRUE(ledger.HasRoom(1, 32));
  EXPECT_FALSE(ledger.HasRoom(1, 48));
  // No more than there is.
  ledger.SetGrant(1, 1000);
  EXPECT_FALSE(ledger.HasRoom(1, 176));
}

}  // namespace
}  // namespace nacre::coordinator
