#include "model/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace nacre::model {
namespace {

using ::testing::ElementsAre;

// Publishes the reservation's blocks that `ids` fill and that were not cached.
void PublishAll(BlockPool& pool, const BlockPool::Reservation& reservation,
                const std::vector<int32_t>& ids, int block_size) {
  BlockPool::Node node = reservation.node;
  for (size_t i = static_cast<size_t>(reservation.num_cached);
       (i + 1) * static_cast<size_t>(block_size) <= ids.size(); ++i) {
    node = pool.Publish(
        node,
        absl::MakeConstSpan(ids).subspan(i * static_cast<size_t>(block_size),
                                         static_cast<size_t>(block_size)),
        reservation.blocks[i]);
  }
}

TEST(BlockPoolTest, SharesFullBlocksOfTheSamePrefix) {
  BlockPool pool(8, 2, /*cache=*/true);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  const auto first = pool.Reserve(3, ids);
  EXPECT_EQ(first->num_cached, 0);
  PublishAll(pool, *first, ids, 2);

  const auto second = pool.Reserve(4, {1, 2, 3, 4, 9, 9, 9});
  EXPECT_EQ(second->num_cached, 2);
  EXPECT_EQ(second->blocks[0], first->blocks[0]);
  EXPECT_EQ(second->blocks[1], first->blocks[1]);
  EXPECT_EQ(pool.num_available(), 8 - 3 - 2);

  // Another beginning, the same tokens elsewhere: nothing to share.
  EXPECT_EQ(pool.Reserve(1, {3, 4, 5})->num_cached, 0);
  EXPECT_EQ(pool.Reserve(1, {2, 1, 3})->num_cached, 0);
}

TEST(BlockPoolTest, LeavesATokenToCompute) {
  BlockPool pool(8, 2, true);
  const std::vector<int32_t> ids = {1, 2, 3, 4};
  const auto first = pool.Reserve(2, ids);
  PublishAll(pool, *first, ids, 2);
  EXPECT_EQ(pool.Reserve(2, {1, 2, 3, 4})->num_cached, 1);
  EXPECT_EQ(pool.Reserve(2, {1, 2})->num_cached, 0);
  EXPECT_EQ(pool.Reserve(1, {})->num_cached, 0);
}

TEST(BlockPoolTest, KeepsUnusedBlocksUntilTheirRoomIsNeeded) {
  BlockPool pool(4, 1, true);
  const auto old = pool.Reserve(2, {1, 2});
  PublishAll(pool, *old, {1, 2}, 1);
  const auto recent = pool.Reserve(2, {3, 4});
  PublishAll(pool, *recent, {3, 4}, 1);
  pool.Release(old->blocks);
  pool.Release(recent->blocks);
  EXPECT_EQ(pool.num_available(), 4);
  EXPECT_EQ(pool.num_cached(), 4);

  // The one unused longest goes first, and of it the end before the beginning.
  const auto one = pool.Reserve(1, {});
  EXPECT_EQ(pool.num_cached(), 3);
  const auto hit = pool.Reserve(2, {1, 2, 9});
  EXPECT_EQ(hit->num_cached, 1);
  EXPECT_EQ(pool.num_available(), 1);  // 3; 4 was taken
  pool.Release(one->blocks);
  pool.Release(hit->blocks);
  EXPECT_EQ(pool.Reserve(1, {3, 9})->num_cached, 1);
  EXPECT_EQ(pool.num_available(), 3);
}

TEST(BlockPoolTest, CachedBlocksInUseAreNotTaken) {
  BlockPool pool(3, 1, true);
  const auto first = pool.Reserve(2, {1, 2});
  PublishAll(pool, *first, {1, 2}, 1);
  EXPECT_FALSE(pool.Reserve(2, {5}).has_value());
  pool.Release(first->blocks);
  // It would need one cached block and three more.
  EXPECT_FALSE(pool.Reserve(4, {1, 9}).has_value());
  EXPECT_EQ(pool.num_available(), 3);
  EXPECT_EQ(pool.num_cached(), 2);
  const auto second = pool.Reserve(3, {1, 9});
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->num_cached, 1);
}

TEST(BlockPoolTest, TheFirstOfTwoEqualBlocksIsShared) {
  BlockPool pool(6, 1, true);
  const auto first = pool.Reserve(2, {1, 2});
  const auto second = pool.Reserve(2, {1, 2});  // at the same time
  PublishAll(pool, *first, {1, 2}, 1);
  PublishAll(pool, *second, {1, 2}, 1);
  EXPECT_EQ(pool.num_cached(), 2);
  EXPECT_THAT(pool.Reserve(2, {1, 2, 3})->blocks,
              ElementsAre(first->blocks[0], first->blocks[1]));
  pool.Release(second->blocks);
  EXPECT_EQ(pool.num_available(), 4);
}

TEST(BlockPoolTest, WithoutCacheNothingIsShared) {
  BlockPool pool(4, 1, /*cache=*/false);
  const auto first = pool.Reserve(2, {1, 2});
  PublishAll(pool, *first, {1, 2}, 1);
  pool.Release(first->blocks);
  EXPECT_EQ(pool.Reserve(2, {1, 2, 3})->num_cached, 0);
  EXPECT_EQ(pool.num_cached(), 0);
}

TEST(BlockPoolTest, PublishingHalfABlockOrTwiceIsFatal) {
  BlockPool pool(4, 2, true);
  const auto first = pool.Reserve(1, {});
  EXPECT_DEATH(pool.Publish(BlockPool::kRoot, {1}, first->blocks[0]), "full");
  pool.Publish(BlockPool::kRoot, {1, 2}, first->blocks[0]);
  EXPECT_DEATH(pool.Publish(BlockPool::kRoot, {1, 3}, first->blocks[0]),
               "published once");
}

// Against a model of what each block holds: a cached block always holds what
// was asked for, a block has one writer, and nothing is lost.
TEST(BlockPoolTest, RandomUseNeverSharesTheWrongTokens) {
  std::mt19937_64 random(5);
  constexpr int kBlocks = 24;
  constexpr size_t kSize = 2;
  BlockPool pool(kBlocks, kSize, true);
  struct Sequence {
    BlockPool::Reservation reservation;
    std::vector<int32_t> ids;
  };
  std::vector<Sequence> running;
  std::map<int32_t, std::vector<int32_t>> held;  // block to the whole prefix
  int hits = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || running.empty()) {
      std::vector<int32_t> ids(1 + random() % 12);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2);
      const int num_blocks = static_cast<int>((ids.size() + kSize - 1) / kSize);
      const auto reservation = pool.Reserve(num_blocks, ids);
      if (!reservation.has_value()) {
        ASSERT_LT(pool.num_available(), num_blocks);
        continue;
      }
      hits += reservation->num_cached;
      for (size_t i = 0; i < reservation->blocks.size(); ++i) {
        const int32_t block = reservation->blocks[i];
        const std::vector<int32_t> prefix(
            ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(
                                           ids.size(), (i + 1) * kSize)));
        if (static_cast<int>(i) < reservation->num_cached) {
          ASSERT_EQ(held[block], prefix);
        } else {
          for (const Sequence& other : running) {
            const auto& blocks = other.reservation.blocks;
            ASSERT_EQ(std::count(blocks.begin(), blocks.end(), block), 0);
          }
          held[block] = prefix;
        }
      }
      PublishAll(pool, *reservation, ids, kSize);
      running.push_back({*reservation, ids});
    } else {
      const size_t i = random() % running.size();
      pool.Release(running[i].reservation.blocks);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  EXPECT_GT(hits, 1000);
  for (const Sequence& sequence : running) {
    pool.Release(sequence.reservation.blocks);
  }
  EXPECT_EQ(pool.num_available(), kBlocks);
  EXPECT_TRUE(pool.Reserve(kBlocks, {}).has_value());
  EXPECT_EQ(pool.num_cached(), 0);
}

}  // namespace
}  // namespace nacre::model
