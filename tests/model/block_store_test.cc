#include "model/block_store.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/block_sequence.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

// A block holds one number, which the test writes there.
class NumberStore final : public BlockStore {
 public:
  NumberStore(int num_blocks, std::vector<int>* held)
      : BlockStore(num_blocks, /*block_size=*/2, /*blocks_at_once=*/100),
        held_(held),
        kept_(static_cast<size_t>(num_blocks)) {}

 private:
  void Save(int32_t block, int32_t slot) override {
    kept_[static_cast<size_t>(slot)] = (*held_)[static_cast<size_t>(block)];
  }
  void Load(int32_t slot, int32_t block) override {
    (*held_)[static_cast<size_t>(block)] = kept_[static_cast<size_t>(slot)];
  }

  std::vector<int>* const held_;
  std::vector<int> kept_;
};

class BlockStoreTest : public ::testing::Test {
 protected:
  static constexpr int kSize = 2;
  static constexpr int kAll = 100;  // blocks

  void Keep(int num_blocks) {
    store_ = std::make_unique<NumberStore>(num_blocks, &held_);
    pool_.set_store(store_.get());
  }

  std::unique_ptr<BlockSequence> New(const Ids& ids) {
    const int length = static_cast<int>(ids.size());
    auto reservation =
        pool_.Reserve(BlockSequence::NumBlocks(length, 0, kSize), ids);
    EXPECT_TRUE(reservation.has_value());
    return std::make_unique<BlockSequence>(&pool_, length,
                                           *std::move(reservation));
  }
  // Computes what it does not have: a block's number is the sum of all tokens
  // up to its end. Then it ends.
  void Compute(const Ids& ids) {
    auto sequence = New(ids);
    sequence->TakeOver(ids, kAll);
    sequence->Append(static_cast<int>(ids.size()) - sequence->length());
    for (size_t i = 0; i < ids.size() / kSize; ++i) {
      held_[static_cast<size_t>(sequence->block_table()[i])] = SumTo(ids, i);
    }
    sequence->Share(ids);
  }
  static int SumTo(const Ids& ids, size_t block) {
    int sum = 0;
    for (size_t i = 0; i < (block + 1) * kSize; ++i) sum += ids[i];
    return sum;
  }
  // The KV cache has nothing of it any more.
  void Lose() { ASSERT_NE(New(Ids(16, 0)), nullptr); }

  BlockPool pool_{8, kSize, /*cache=*/true};
  std::vector<int> held_ = std::vector<int>(8);
  std::unique_ptr<NumberStore> store_;
  const Ids ids_ = {1, 2, 3, 4, 5, 6, 7, 8, 9};
};

TEST_F(BlockStoreTest, WhatTheCacheHasLostIsBroughtBack) {
  Keep(10);
  Compute(ids_);
  EXPECT_EQ(store_->num_kept(), 4);
  Lose();
  const auto later = New(ids_);
  EXPECT_EQ(later->length(), 0);
  EXPECT_EQ(later->TakeOver(ids_, kAll), (TakenOver{8, 8, false, 4}));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(held_[static_cast<size_t>(later->block_table()[i])],
              SumTo(ids_, i));
  }
  // It is in the cache again.
  EXPECT_EQ(pool_.num_cached(), 4);
  EXPECT_EQ(store_->num_kept(), 4);
}

TEST_F(BlockStoreTest, WithoutAStoreItIsLost) {
  Compute(ids_);
  Lose();
  EXPECT_EQ(New(ids_)->TakeOver(ids_, kAll), TakenOver());
}

TEST_F(BlockStoreTest, OnlyTheSamePrefixIsBrought) {
  Keep(10);
  Compute(ids_);
  Lose();
  const Ids other = {1, 2, 3, 0, 5, 6, 7, 8, 9};
  EXPECT_EQ(New(other)->TakeOver(other, kAll), (TakenOver{2, 2, false, 1}));
  Lose();
  const Ids moved = {3, 4, 5, 6, 7};
  EXPECT_EQ(New(moved)->TakeOver(moved, kAll), TakenOver());
}

TEST_F(BlockStoreTest, OnlyWhatWasComputedAlikeIsBrought) {
  Keep(10);
  const auto of_prompt = [this](int prompt_positions) {
    auto reservation = pool_.Reserve(5, ids_, prompt_positions);
    EXPECT_TRUE(reservation.has_value());
    return std::make_unique<BlockSequence>(&pool_, 9, *std::move(reservation),
                                           0, prompt_positions);
  };
  {
    const auto first = of_prompt(5);
    first->Append(9);
    first->Share(ids_);
  }
  for (const auto& [prompt_positions, length] :
       {std::pair(0, 0), std::pair(4, 4), std::pair(5, 8), std::pair(6, 4)}) {
    Lose();
    EXPECT_EQ(of_prompt(prompt_positions)->TakeOver(ids_, kAll).brought, length)
        << prompt_positions;
  }
}

TEST_F(BlockStoreTest, ATokenIsLeftToBeComputed) {
  Keep(10);
  Compute(ids_);
  Lose();
  const Ids four = {1, 2, 3, 4};
  EXPECT_EQ(New(four)->TakeOver(four, kAll).positions, 2);
}

TEST_F(BlockStoreTest, OnlySoMuchAtOnce) {
  Keep(10);
  Compute(ids_);
  Lose();
  const auto later = New(ids_);
  EXPECT_EQ(later->TakeOver(ids_, 3), (TakenOver{6, 6, true, 3}));
  EXPECT_EQ(later->TakeOver(ids_, 3), (TakenOver{2, 2, false, 1}));
  EXPECT_EQ(later->TakeOver(ids_, 3), TakenOver());
}

// Where nothing may be copied, only what is kept is worth waiting for.
TEST_F(BlockStoreTest, WhatIsNotKeptIsNotWaitedFor) {
  Keep(10);
  Compute(ids_);
  Lose();
  EXPECT_EQ(New(ids_)->TakeOver(ids_, 0), (TakenOver{0, 0, true, 0}));
  const Ids other = {9, 9, 3, 4};
  EXPECT_EQ(New(other)->TakeOver(other, 0), TakenOver());
  const Ids longer = {1, 2, 9, 9, 9};
  EXPECT_EQ(New(longer)->TakeOver(longer, 1), (TakenOver{2, 2, false, 1}));
}

// What the cache has costs no copy.
TEST_F(BlockStoreTest, WhatTheCacheHasIsTakenWithoutACopy) {
  Keep(10);
  const Ids ids = {1, 2, 3, 4, 5};
  const auto later = New(ids);
  Compute(ids);
  EXPECT_EQ(later->TakeOver(ids, 0), (TakenOver{4, 0, false, 0}));
}

// A longer one that begins alike: its beginning comes from the cache, the rest
// from the store, and the other way round.
TEST_F(BlockStoreTest, BothTiersServeOneSequence) {
  Keep(10);
  Compute(ids_);
  Lose();
  Compute({1, 2, 3, 4, 9});
  const auto later = New(ids_);
  EXPECT_EQ(later->length(), 4);
  EXPECT_EQ(later->TakeOver(ids_, kAll), (TakenOver{4, 4, false, 2}));
}

// What computes a block again gives it the name under which what follows is
// kept.
TEST_F(BlockStoreTest, WhatIsComputedAgainIsThePrefixThatItWas) {
  Keep(10);
  Compute(ids_);
  Lose();
  Compute({1, 2});  // its only block is left to it
  EXPECT_EQ(store_->num_kept(), 4);
  EXPECT_EQ(New(ids_)->TakeOver(ids_, kAll).positions, 6);
}

TEST_F(BlockStoreTest, TheEndOfWhatIsUnusedLongestGoesFirst) {
  Keep(4);
  Compute({1, 2, 3, 4});
  Compute({5, 6, 7, 8});
  Lose();
  Compute({1, 2, 9, 9});  // counts as used, as far as it goes
  EXPECT_EQ(store_->num_kept(), 4);
  Lose();
  const Ids one = {1, 2, 9, 9, 0};
  EXPECT_EQ(New(one)->TakeOver(one, kAll).positions, 4);
  const Ids two = {5, 6, 7, 8, 0};
  EXPECT_EQ(New(two)->TakeOver(two, kAll).positions, 4);
  const Ids gone = {1, 2, 3, 4, 0};
  EXPECT_EQ(New(gone)->TakeOver(gone, kAll).positions, 0)
      << "the cache had {1, 2}";
  EXPECT_EQ(New(gone)->length(), 2);
}

// While a session ran others took the places of its first blocks.
TEST_F(BlockStoreTest, WhatIsLostMeanwhileIsKeptAgain) {
  Keep(4);
  const Ids ids = {1, 2, 3, 4, 5, 6};
  auto stays = New(ids);
  stays->Append(6);
  stays->Share(ids);
  Compute({7, 8, 9, 10});  // in the place of {1, 2}
  EXPECT_EQ(store_->Touch(BlockPool::kRoot, {1, 2}), absl::nullopt);
  stays.reset();
  Lose();
  const Ids longer = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(New(longer)->TakeOver(longer, kAll).positions, 6);
}

// As much of its beginning as there is room for.
TEST_F(BlockStoreTest, OfWhatIsTooLongTheBeginningIsKept) {
  Keep(3);
  Compute(ids_);
  Lose();
  EXPECT_EQ(New(ids_)->TakeOver(ids_, kAll).positions, 6);
}

// A block that it had begun counts only for what is new.
TEST_F(BlockStoreTest, CountsPositions) {
  Keep(10);
  Compute(ids_);
  Lose();
  const auto later = New(ids_);
  later->Append(1);
  EXPECT_EQ(later->TakeOver(ids_, kAll), (TakenOver{7, 7, false, 4}));
}

// What others still use is not the one unused longest.
TEST_F(BlockStoreTest, WhatASessionEndsWithCountsAsUsed) {
  Keep(3);
  Compute({1, 2});
  const auto stays = New({1, 2, 0});
  Compute({3, 4});
  Compute({1, 2, 0});
  Compute({5, 6});
  Compute({7, 8});  // in the place of {3, 4}
  EXPECT_EQ(store_->Touch(BlockPool::kRoot, {3, 4}), absl::nullopt);
  EXPECT_NE(store_->Touch(BlockPool::kRoot, {1, 2}), absl::nullopt);
}

}  // namespace
}  // namespace nacre::model
