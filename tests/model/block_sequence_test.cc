#include "model/block_sequence.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

class BlockSequenceTest : public ::testing::Test {
 protected:
  static constexpr int kSize = 4;

  // A sequence of max_length positions, nothing of it cached.
  std::unique_ptr<BlockSequence> New(int max_length) {
    auto reservation = pool_.Reserve((max_length + kSize - 1) / kSize, {});
    EXPECT_TRUE(reservation.has_value());
    return std::make_unique<BlockSequence>(&pool_, max_length,
                                           *std::move(reservation));
  }
  // One that has computed and shared these tokens.
  std::unique_ptr<BlockSequence> Computed(const Ids& ids) {
    auto sequence = New(static_cast<int>(ids.size()));
    sequence->Append(static_cast<int>(ids.size()));
    sequence->Share(ids);
    return sequence;
  }

  BlockPool pool_{8, kSize, /*cache=*/true};
  const Ids ids_ = {1, 2, 3, 4, 5, 6, 7, 8, 9};
};

TEST_F(BlockSequenceTest, TakesOverWhatWasSharedSinceItBegan) {
  const auto late = New(12);
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 0);
  const auto first = Computed(ids_);
  const int available = pool_.num_available();
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 8);
  EXPECT_EQ(late->length(), 8);
  EXPECT_EQ(late->block_table()[0], first->block_table()[0]);
  EXPECT_EQ(late->block_table()[1], first->block_table()[1]);
  EXPECT_NE(late->block_table()[2], first->block_table()[2]);
  // Its own two are free again.
  EXPECT_EQ(pool_.num_available(), available + 2);
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 0);
  EXPECT_DEATH(late->Truncate(7), "shared");
}

TEST_F(BlockSequenceTest, GivesUpABlockThatItHasBegun) {
  const auto late = New(9);
  late->Append(3);
  const auto first = Computed({1, 2, 3, 4});
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 1);
  EXPECT_EQ(late->length(), 4);
  EXPECT_EQ(late->block_table()[0], first->block_table()[0]);
  // What it computes after serves others.
  late->Append(4);
  late->Share(ids_);
  const auto last = New(9);
  EXPECT_EQ(last->TakeOver(ids_, 0).positions, 8);
  EXPECT_EQ(last->block_table()[1], late->block_table()[1]);
}

TEST_F(BlockSequenceTest, LeavesATokenToComputeAndKeepsToItsRoom) {
  const auto first = Computed({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(New(12)->TakeOver({1, 2, 3, 4, 5, 6, 7, 8}, 0).positions, 4);
  EXPECT_EQ(New(7)->TakeOver(ids_, 0).positions, 4);
  EXPECT_EQ(New(4)->TakeOver({1, 2, 3, 4}, 0).positions, 0);
  EXPECT_EQ(New(4)->TakeOver({}, 0).positions, 0);
}

TEST_F(BlockSequenceTest, TakesNothingBehindOtherTokens) {
  const auto first = Computed({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(New(12)->TakeOver({1, 2, 3, 0, 5, 6, 7, 8, 9}, 0).positions, 0);
  EXPECT_EQ(New(12)->TakeOver({5, 6, 7, 8, 9}, 0).positions, 0);
  EXPECT_EQ(New(12)->TakeOver({1, 2, 3, 4, 5, 6, 7, 0, 9}, 0).positions, 4);
}

TEST_F(BlockSequenceTest, KeepsItsOwnFullBlockUntilItIsSettled) {
  const auto first = Computed({1, 2, 3, 4});
  const auto late = New(12);
  late->Append(6);  // into the second block, none of it settled
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 0);
  EXPECT_EQ(late->length(), 6);
  late->Truncate(1);
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 3);
}

TEST_F(BlockSequenceTest, WhatWasSharedOutlivesWhoComputedIt) {
  const auto late = New(12);
  Computed(ids_).reset();
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 8);
}

TEST_F(BlockSequenceTest, EvictedBlocksAreGone) {
  const auto late = New(12);
  Computed(ids_).reset();
  New(20).reset();  // takes all the room that is left
  EXPECT_EQ(late->TakeOver(ids_, 0).positions, 0);
  EXPECT_EQ(pool_.num_available(), 5);
}

// What was computed as a prompt has other keys and values.
TEST_F(BlockSequenceTest, SharesOnlyWhatWasComputedAlike) {
  const auto of_prompt = [this](int prompt_positions) {
    auto reservation = pool_.Reserve(3, ids_, prompt_positions);
    EXPECT_TRUE(reservation.has_value());
    return std::make_unique<BlockSequence>(&pool_, 9, *std::move(reservation),
                                           0, prompt_positions);
  };
  {
    const auto first = of_prompt(6);
    EXPECT_EQ(first->prompt_positions(), 6);
    first->Append(9);
    first->Share(ids_);
  }
  // The second block ends after the prompt, in its middle, or before it.
  for (const auto& [prompt_positions, length] :
       {std::pair(0, 0), std::pair(3, 0), std::pair(4, 4), std::pair(5, 4),
        std::pair(6, 8), std::pair(7, 4), std::pair(8, 4), std::pair(9, 4)}) {
    EXPECT_EQ(of_prompt(prompt_positions)->length(), length)
        << prompt_positions;
    auto reservation = pool_.Reserve(3, {});
    BlockSequence late(&pool_, 9, *std::move(reservation), 0, prompt_positions);
    EXPECT_EQ(late.TakeOver(ids_, 0).positions, length) << prompt_positions;
  }
}

// A block after another is found with it alone.
TEST_F(BlockSequenceTest, BlocksAfterOthersAreOthers) {
  for (const int prompt_positions : {0, 2}) {
    auto reservation = pool_.Reserve(2, ids_, prompt_positions);
    BlockSequence sequence(&pool_, 8, *std::move(reservation), 0,
                           prompt_positions);
    EXPECT_EQ(sequence.length(), 0);
    sequence.Append(8);
    sequence.Share(ids_);
  }
  EXPECT_EQ(pool_.num_cached(), 4);
}

TEST_F(BlockSequenceTest, WithoutACacheThereIsNothingToTake) {
  BlockPool pool(8, kSize, /*cache=*/false);
  BlockSequence first(&pool, 8, *pool.Reserve(2, {}));
  BlockSequence late(&pool, 12, *pool.Reserve(3, {}));
  first.Append(8);
  first.Share(ids_);
  EXPECT_EQ(late.TakeOver(ids_, 0).positions, 0);
  first.Truncate(0);
}

TEST_F(BlockSequenceTest, ItsVersionTellsWhetherItHasOnlyGrown) {
  auto sequence = New(8);
  const auto other = New(8);
  const uint64_t version = sequence->version();
  EXPECT_NE(version, other->version());
  sequence->Append(7);
  sequence->Share(ids_);
  sequence->Truncate(7);
  EXPECT_EQ(sequence->version(), version);
  sequence->Truncate(6);
  const uint64_t cut = sequence->version();
  EXPECT_NE(cut, version);
  sequence->Append(1);
  EXPECT_EQ(sequence->version(), cut);
  sequence.reset();
  sequence = New(8);  // in the same place, perhaps
  EXPECT_NE(sequence->version(), cut);
  EXPECT_NE(sequence->version(), version);
}

// Notes what it would copy.
class NotedSequence : public BlockSequence {
 public:
  using BlockSequence::BlockSequence;
  std::vector<std::pair<int, int>> moves;

 private:
  void Move(absl::Span<const kernels::KvMove> noted) override {
    for (const auto& move : noted) moves.emplace_back(move.from, move.to);
  }
};

// 6 positions and 5 slots: two blocks each.
class SlotsOfASequenceTest : public ::testing::Test {
 protected:
  SlotsOfASequenceTest() {
    EXPECT_EQ(BlockSequence::NumBlocks(6, 5, 4), 4);
    EXPECT_EQ(BlockSequence::NumBlocks(8, 0, 4), 2);
    sequence_ =
        std::make_unique<NotedSequence>(&pool_, 6, *pool_.Reserve(4, {}), 5);
    sequence_->Append(3);
    for (const TreeNode& node :
         {TreeNode{4, kNoSlot, 3}, TreeNode{1, 4, 4}, TreeNode{0, 1, 5}}) {
      EXPECT_TRUE(sequence_->CheckNodes({&node, 1}, 3).ok());
      sequence_->FillSlot(node);
    }
  }

  BlockPool pool_{8, 4, /*cache=*/false};
  std::unique_ptr<NotedSequence> sequence_;
};

TEST_F(SlotsOfASequenceTest, LieInBlocksBehindThoseOfThePositions) {
  EXPECT_EQ(sequence_->num_slots(), 5);
  EXPECT_EQ(pool_.num_available(), 4);
  const int32_t* const blocks = sequence_->block_table();
  std::vector<kernels::KvSlot> path = {99};
  sequence_->AppendPath(1, &path);
  EXPECT_EQ(path, (std::vector<kernels::KvSlot>{99, blocks[3] * 4,
                                                blocks[2] * 4 + 1}));
}

TEST_F(SlotsOfASequenceTest, AKeptPathBecomesPositions) {
  const uint64_t version = sequence_->version();
  ASSERT_TRUE(sequence_->KeepPath(3, {4, 1}).ok());
  const int32_t* const blocks = sequence_->block_table();
  EXPECT_EQ(sequence_->moves, (std::vector<std::pair<int, int>>{
                                  {blocks[3] * 4, blocks[0] * 4 + 3},
                                  {blocks[2] * 4 + 1, blocks[1] * 4}}));
  EXPECT_EQ(sequence_->length(), 5);
  EXPECT_NE(sequence_->version(), version);
  // Once more: the sequence is longer already.
  const uint64_t kept = sequence_->version();
  ASSERT_TRUE(sequence_->KeepPath(3, {4, 1}).ok());
  EXPECT_EQ(sequence_->moves.size(), 2u);
  EXPECT_EQ(sequence_->length(), 5);
  EXPECT_EQ(sequence_->version(), kept);
  // What was below the path goes on.
  ASSERT_TRUE(sequence_->KeepPath(5, {0}).ok());
  EXPECT_EQ(sequence_->length(), 6);
}

TEST_F(SlotsOfASequenceTest, NothingIsKeptOfNoPath) {
  const uint64_t version = sequence_->version();
  EXPECT_TRUE(sequence_->KeepPath(3, {}).ok());
  EXPECT_EQ(sequence_->version(), version);
  EXPECT_EQ(sequence_->length(), 3);
}

TEST_F(SlotsOfASequenceTest, RefusesAPathThatDoesNotFit) {
  const auto refused = [&](int length, const std::vector<int32_t>& slots) {
    const uint64_t version = sequence_->version();
    const absl::Status status = sequence_->KeepPath(length, slots);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(sequence_->length(), 3);
    EXPECT_EQ(sequence_->version(), version);
    EXPECT_TRUE(sequence_->moves.empty());
    return status.ToString();
  };
  EXPECT_THAT(refused(4, {1}),
              HasSubstr("a path of 1 nodes after 4 positions, the sequence "
                        "holds 3 and has room for 6"));
  EXPECT_THAT(refused(3, {4, 1, 0, 2}), HasSubstr("a path of 4 nodes"));
  EXPECT_THAT(refused(3, {5}), HasSubstr("slot 5 is outside"));
  EXPECT_THAT(refused(3, {1}), HasSubstr("slot 1 holds no node after"));
  // Slots cannot stand where positions are.
  EXPECT_DEATH(sequence_->Append(4), "passes its reserved length");
}

TEST_F(SlotsOfASequenceTest, TruncationTakesTheTreeBehindIt) {
  sequence_->Truncate(3);
  EXPECT_TRUE(sequence_->CheckNodes({{2, 0, 6}}, 3).ok());
  sequence_->Truncate(2);
  EXPECT_FALSE(sequence_->CheckNodes({{2, 0, 6}}, 2).ok());
  sequence_.reset();
  EXPECT_EQ(pool_.num_available(), 8);
}

}  // namespace
}  // namespace nacre::model
