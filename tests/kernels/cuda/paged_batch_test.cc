#include "kernels/cuda/paged_batch.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda {
namespace {

using ::testing::ElementsAre;

constexpr int kBlockSize = 16;

class PagedBatchTest : public ::testing::Test {
 protected:
  PagedBatchTest() {
    emulation::ResetDevice();
    device_ = *Device::Open(0);
    staging_ = *Staging::Create(device_.get());
    step_ = std::make_unique<StepUpload>(device_.get(), staging_.get());
    batch_ = std::make_unique<PagedBatch>(device_.get(), staging_.get(),
                                          step_.get());
  }

  static std::vector<int32_t> Download(const int32_t* from, size_t count) {
    std::vector<int32_t> ints(count);
    EXPECT_EQ(cudaMemcpy(ints.data(), from, count * sizeof(int32_t),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return ints;
  }

  std::vector<int32_t> first_ = {7, 3, 9};  // block tables
  std::vector<int32_t> second_ = {4, 1, 8};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<StepUpload> step_;
  std::unique_ptr<PagedBatch> batch_;
};

TEST_F(PagedBatchTest, SendsEachSessionsTableAsFarAsItIsRead) {
  const std::vector<RowContext> contexts = {{first_.data(), 14},
                                            {first_.data(), 16},
                                            {second_.data(), 47},
                                            {first_.data(), 2}};
  const PagedRows rows = batch_->SendRows(contexts, kBlockSize);
  EXPECT_EQ(rows.count, 4);
  EXPECT_THAT(Download(rows.positions, 4), ElementsAre(14, 16, 47, 2));
  EXPECT_THAT(Download(rows.table_begins, 4), ElementsAre(0, 0, 2, 5));
  EXPECT_THAT(Download(rows.tables, 6), ElementsAre(7, 3, 4, 1, 8, 7));
}

TEST_F(PagedBatchTest, SendsOnceWhatAllLayersAskFor) {
  const std::vector<RowContext> contexts = {{first_.data(), 20}};
  const PagedRows rows = batch_->SendRows(contexts, kBlockSize);
  const int uploads = emulation::counts.uploads;
  const int waits = emulation::counts.waits;
  EXPECT_EQ(batch_->SendRows(contexts, kBlockSize).tables, rows.tables);
  EXPECT_EQ(emulation::counts.uploads, uploads);
  // Another step: the next position, in the same memory.
  const std::vector<RowContext> next = {{first_.data(), 21}};
  EXPECT_THAT(Download(batch_->SendRows(next, kBlockSize).positions, 1),
              ElementsAre(21));
  EXPECT_EQ(emulation::counts.uploads, uploads + 1);
  EXPECT_EQ(emulation::counts.waits, waits + 1);  // Download's
}

// A session ends and another one gets its table's memory, with other blocks.
TEST_F(PagedBatchTest, NoticesThatATableChangedWhereItLies) {
  const std::vector<RowContext> contexts = {{first_.data(), 20}};
  batch_->SendRows(contexts, kBlockSize);
  first_[1] = 5;
  EXPECT_THAT(Download(batch_->SendRows(contexts, kBlockSize).tables, 2),
              ElementsAre(7, 5));
}

TEST_F(PagedBatchTest, SendsAgainWhatLayInMemoryThatBecameTooSmall) {
  const std::vector<RowContext> contexts = {{first_.data(), 20}};
  batch_->SendRows(contexts, kBlockSize);
  ASSERT_TRUE(batch_->Reserve(1000, 1000));
  EXPECT_THAT(Download(batch_->SendRows(contexts, kBlockSize).tables, 2),
              ElementsAre(7, 3));
}

TEST_F(PagedBatchTest, KeepsTheErrorWhereThereIsNoRoom) {
  emulation::settings.memory_bytes = emulation::counts.used_bytes;
  const std::vector<RowContext> contexts = {{first_.data(), 20}};
  batch_->SendRows(contexts, kBlockSize);
  EXPECT_EQ(device_->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
}

std::vector<PlannedTile> TilesOf(int rows) {
  PlannedTile tile;
  tile.at = {0, rows};
  return {tile};
}

TEST_F(PagedBatchTest, FindsWhatTheStepWasSent) {
  const std::vector<RowContext> contexts = {{first_.data(), 20},
                                            {second_.data(), 2}};
  batch_->AddToStep(contexts, kBlockSize, TilesOf(2));
  ASSERT_TRUE(step_->Send(0));
  const int uploads = emulation::counts.uploads;
  const PagedRows rows = batch_->SendRows(contexts, kBlockSize);
  EXPECT_THAT(Download(rows.positions, 2), ElementsAre(20, 2));
  EXPECT_THAT(Download(rows.tables, 3), ElementsAre(7, 3, 4));
  EXPECT_EQ(batch_->SendTiles(TilesOf(2)), step_->Find(StepPart::kTiles));
  EXPECT_EQ(emulation::counts.uploads, uploads);
  // Others, as of attention over another model's keys: once, and the step's
  // stay.
  const std::vector<RowContext> others = {{second_.data(), 40}};
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_THAT(Download(batch_->SendRows(others, kBlockSize).tables, 3),
                ElementsAre(4, 1, 8));
    EXPECT_NE(batch_->SendTiles(TilesOf(1)), step_->Find(StepPart::kTiles));
    EXPECT_EQ(batch_->SendRows(contexts, kBlockSize), rows);
  }
  EXPECT_EQ(emulation::counts.uploads, uploads + 2);
}

AttentionCut Cut(int tile_rows, size_t max_partial_bytes = 1 << 20) {
  AttentionCut cut;
  cut.tile_rows = tile_rows;
  cut.num_heads = 4;
  cut.head_dim = 6;  // 128 bytes a row and split
  cut.max_partial_bytes = max_partial_bytes;
  return cut;
}

std::vector<std::pair<int, int>> Pairs(const std::vector<PlannedTile>& tiles) {
  std::vector<std::pair<int, int>> pairs;
  for (const PlannedTile& tile : tiles) {
    pairs.emplace_back(tile.at.first_row, tile.at.rows);
  }
  return pairs;
}

TEST_F(PagedBatchTest, TilesStopWhereASessionOrTheirRoomEnds) {
  const std::vector<RowContext> contexts = {
      {first_.data(), 0},  {first_.data(), 1},  {first_.data(), 2},
      {second_.data(), 0}, {second_.data(), 1}, {first_.data(), 3}};
  EXPECT_THAT(Pairs(CutTiles(contexts, Cut(2))),
              ElementsAre(std::pair(0, 2), std::pair(2, 1), std::pair(3, 2),
                          std::pair(5, 1)));
  EXPECT_THAT(Pairs(CutTiles(contexts, Cut(8))),
              ElementsAre(std::pair(0, 3), std::pair(3, 2), std::pair(5, 1)));
  EXPECT_TRUE(CutTiles({}, Cut(8)).empty());
  EXPECT_EQ(AttentionTileRows(1, DType::kF32), 8);
  EXPECT_EQ(AttentionTileRows(3, DType::kF32), 2);
  EXPECT_EQ(AttentionTileRows(12, DType::kF32), 1);
  EXPECT_EQ(AttentionTileRows(4, DType::kBF16), 32);
  EXPECT_EQ(AttentionTileRows(100, DType::kBF16), 1);
}

TEST_F(PagedBatchTest, TilesKnowTheirSplitsInWhateverOrderRowsAre) {
  const std::vector<RowContext> contexts = {
      {first_.data(), 7}, {first_.data(), 300}, {first_.data(), 3}};
  const auto tiles = CutTiles(contexts, Cut(8));
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_EQ(tiles[0].splits, 3);
  const auto* const sent =
      reinterpret_cast<const int32_t*>(batch_->SendTiles(tiles));
  EXPECT_THAT(Download(sent, 2), ElementsAre(0, 3));
}

TEST_F(PagedBatchTest, TilesAreShorterWhereTheirPartialResultsHaveNoRoom) {
  std::vector<RowContext> contexts;
  for (int row = 0; row < 6; ++row) contexts.push_back({first_.data(), 300});
  // 3 splits: 384 bytes a row.
  EXPECT_THAT(Pairs(CutTiles(contexts, Cut(4, 1000))),
              ElementsAre(std::pair(0, 2), std::pair(2, 2), std::pair(4, 2)));
  EXPECT_EQ(CutTiles(contexts, Cut(4, 0)).size(), 6u);
}

TEST_F(PagedBatchTest, FullTilesOfPromptsAreWholeWhereTheyAreMany) {
  std::vector<RowContext> contexts;
  for (int row = 0; row < 70; ++row) contexts.push_back({first_.data(), 300});
  contexts.push_back({second_.data(), 5});
  for (int row = 0; row < 16; ++row) contexts.push_back({first_.data(), 300});
  AttentionCut cut = Cut(16, 0);
  cut.least_whole_tiles = 5;
  EXPECT_EQ(CutChunks(CutTiles(contexts, cut), cut).size(), 70u + 1 + 16);
  cut.least_whole_tiles = 4;
  const auto tiles = CutTiles(contexts, cut);
  const auto chunks = CutChunks(tiles, cut);
  ASSERT_EQ(chunks.size(), 1u + 6 + 1 + 16);
  EXPECT_TRUE(chunks[0].whole);
  EXPECT_EQ(chunks[0].num_tiles, 4);
  EXPECT_EQ(chunks[0].num_rows, 64);
  EXPECT_EQ(chunks[0].max_tile_rows, 16);
  EXPECT_FALSE(chunks[1].whole);
  EXPECT_EQ(chunks[1].first_row, 64);
  // Not a prompt's.
  EXPECT_FALSE(tiles.back().whole);
}

TEST_F(PagedBatchTest, ChunksHoldWhatFitsAndAtLeastOneTile) {
  std::vector<RowContext> contexts;
  for (const int position : {10, 11, 300, 301, 600, 601}) {
    contexts.push_back({first_.data(), position});
  }
  // 3, then 5 splits.
  const AttentionCut cut = Cut(2, 4 * 3 * 128);
  const auto chunks = CutChunks(CutTiles(contexts, cut), cut);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].first_tile, 0);
  EXPECT_EQ(chunks[0].num_tiles, 2);
  EXPECT_EQ(chunks[0].num_rows, 4);
  EXPECT_EQ(chunks[0].max_splits, 3);
  EXPECT_EQ(chunks[0].max_tile_rows, 2);
  EXPECT_EQ(chunks[1].first_tile, 2);
  EXPECT_EQ(chunks[1].first_row, 4);
  EXPECT_EQ(chunks[1].num_rows, 2);
  EXPECT_EQ(chunks[1].max_splits, 5);
  const auto tiles = CutTiles(contexts, Cut(2));
  EXPECT_EQ(CutChunks(tiles, Cut(2, 0)).size(), 3u);
  EXPECT_EQ(CutChunks(tiles, Cut(2)).size(), 1u);
}

TEST_F(PagedBatchTest, SendsTailsBehindTheTablesOfTheirSessions) {
  const std::vector<KvSlot> long_tail = {70, 33};
  const std::vector<KvSlot> short_tail = {90};
  const std::vector<RowContext> contexts = {
      {second_.data(), 20},
      {first_.data(), 18, 17, long_tail.data()},
      {first_.data(), 16, 17, short_tail.data()},  // stands before its tail
      {first_.data(), 17, 17, short_tail.data()}};
  const PagedRows rows = batch_->SendRows(contexts, kBlockSize);
  EXPECT_THAT(Download(rows.positions, 4), ElementsAre(20, 18, 16, 17));
  EXPECT_THAT(Download(rows.table_begins, 4), ElementsAre(0, 2, 2, 2));
  EXPECT_THAT(Download(rows.tail_begins, 4),
              ElementsAre(kNoTail, 17, kNoTail, 17));
  EXPECT_THAT(Download(rows.tables, 7), ElementsAre(4, 1, 7, 3, 70, 33, 90));
  EXPECT_EQ(Download(rows.tail_indices, 4)[1], 4);
  EXPECT_EQ(Download(rows.tail_indices, 4)[3], 6);
  // Without tails there is no trace of them.
  EXPECT_EQ(batch_->SendRows({contexts.data(), 1}, kBlockSize).tail_begins,
            nullptr);
}

std::vector<std::vector<int>> Ranges(const std::vector<PlannedTile>& tiles) {
  std::vector<std::vector<int>> ranges;
  for (const PlannedTile& tile : tiles) {
    ranges.push_back({tile.at.first_row, tile.at.rows, tile.at.first_split,
                      tile.at.end_split});
  }
  return ranges;
}

TEST_F(PagedBatchTest, RowsWithTailsShareTheSplitsBeforeAllTails) {
  const std::vector<KvSlot> tail(300, 0);
  const std::vector<RowContext> contexts = {
      {second_.data(), 20},
      {first_.data(), 299},
      {first_.data(), 300, 300, tail.data()},
      {first_.data(), 301, 280, tail.data()},
      {first_.data(), 100}};  // ends before the tails' first split
  const AttentionCut cut = Cut(8);
  const auto tiles = CutTiles(contexts, cut);
  EXPECT_THAT(Ranges(tiles), ElementsAre(ElementsAre(0, 1, 0, kEverySplit),
                                         ElementsAre(1, 4, 0, 2),
                                         ElementsAre(1, 1, 2, kEverySplit),
                                         ElementsAre(2, 1, 2, kEverySplit),
                                         ElementsAre(3, 1, 2, kEverySplit)));
  // The partial results of a row are one chunk's.
  const auto chunks = CutChunks(tiles, Cut(8, 0));
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[1].first_tile, 1);
  EXPECT_EQ(chunks[1].num_tiles, 4);
  EXPECT_EQ(chunks[1].first_row, 1);
  EXPECT_EQ(chunks[1].num_rows, 4);
  EXPECT_EQ(chunks[1].max_tile_rows, 4);
  EXPECT_EQ(chunks[1].max_splits, 3);
}

// Splits are longer where contexts are long, also those that tails are in.
TEST_F(PagedBatchTest, TilesFollowTheRuleOfSplits) {
  const std::vector<KvSlot> tail(300, 0);
  const std::vector<RowContext> contexts = {
      {first_.data(), 20000}, {first_.data(), 20001, 19999, tail.data()}};
  AttentionCut cut = Cut(8);
  EXPECT_EQ(CutTiles(contexts, cut)[0].splits, RoundedUp(20001 / 128 + 1));
  cut.rule = SplitRuleOf(DType::kBF16, 128);
  const int last = 32 + 48 + (20000 - 16384) / 512;
  const auto tiles = CutTiles(contexts, cut);
  EXPECT_EQ(tiles[0].splits, RoundedUp(last + 1));
  EXPECT_THAT(Ranges(tiles), ElementsAre(ElementsAre(0, 2, 0, last),
                                         ElementsAre(0, 1, last, kEverySplit),
                                         ElementsAre(1, 1, last, kEverySplit)));
}

// Three sessions; the longest tile has 3 rows of 2 query heads each.
TEST_F(PagedBatchTest, StepsThatComeAgainHaveGridsInCommon) {
  const std::vector<int32_t> third = {5};
  const std::vector<RowContext> contexts = {{first_.data(), 298},
                                            {first_.data(), 299},
                                            {first_.data(), 300},
                                            {second_.data(), 40},
                                            {third.data(), 2}};
  AttentionCut cut = Cut(64);
  cut.group = 2;
  const AttentionPlan once = PlanAttention(contexts, cut, /*repeats=*/false);
  EXPECT_EQ(once.tiles.size(), 3u);
  ASSERT_EQ(once.chunks.size(), 1u);
  EXPECT_EQ(once.chunks[0].max_splits, 3);
  const AttentionPlan again = PlanAttention(contexts, cut, /*repeats=*/true);
  ASSERT_EQ(again.chunks.size(), 1u);
  EXPECT_EQ(again.chunks[0].num_tiles, 4);
  EXPECT_EQ(again.chunks[0].max_tile_rows, 16 / 2);
  EXPECT_EQ(again.chunks[0].max_splits, 4);
  EXPECT_EQ(again.chunks[0].first_row, 0);
  EXPECT_EQ(again.chunks[0].num_rows, 5);
  EXPECT_THAT(Ranges(again.tiles),
              ElementsAre(ElementsAre(0, 3, 0, kEverySplit),
                          ElementsAre(3, 1, 0, kEverySplit),
                          ElementsAre(4, 1, 0, kEverySplit),
                          ElementsAre(0, 1, 0, 0)));  // no split
  // Of float32 caches: 6 queries, of at most 8.
  cut.tile_rows = 4;
  EXPECT_EQ(PlanAttention(contexts, cut, true).chunks[0].max_tile_rows, 4);
  // Not for more memory than there may be.
  cut.max_partial_bytes = 5 * 3 * 128;
  EXPECT_EQ(PlanAttention(contexts, cut, true).chunks[0].max_splits, 3);
  cut.max_partial_bytes = 0;
  EXPECT_GT(PlanAttention(contexts, cut, true).chunks.size(), 1u);
  EXPECT_EQ(PlanAttention(contexts, cut, true).tiles.size(),
            CutTiles(contexts, cut).size());
}

TEST_F(PagedBatchTest, SplitsLieBehindEachOther) {
  for (const SplitRule rule : {SplitRule{false}, SplitRule{true}}) {
    int split = 0;
    for (int position = 0; position < 40000; ++position) {
      if (position == rule.Begin(split + 1)) ++split;
      ASSERT_EQ(rule.Of(position), split) << position;
    }
    EXPECT_EQ(rule.Begin(0), 0);
    EXPECT_EQ(rule.First(40000, 40001), 0);
    EXPECT_EQ(rule.First(40000, 1), rule.Of(40000));
    EXPECT_EQ(rule.First(20000, 10000), rule.Of(10001));
  }
  EXPECT_LT(SplitRuleOf(DType::kBF16, 128).Of(131071), 310);
  EXPECT_FALSE(SplitRuleOf(DType::kBF16, 130).grows);
  EXPECT_FALSE(SplitRuleOf(DType::kF32, 128).grows);
}

TEST_F(PagedBatchTest, TailsInTheFirstSplitShareNothing) {
  const std::vector<KvSlot> tail(300, 0);
  const std::vector<RowContext> contexts = {
      {first_.data(), 299, 5, tail.data()}, {first_.data(), 4}};
  const auto tiles = CutTiles(contexts, Cut(8));
  EXPECT_THAT(Ranges(tiles), ElementsAre(ElementsAre(0, 1, 0, kEverySplit),
                                         ElementsAre(1, 1, 0, kEverySplit)));
  const auto chunks = CutChunks(tiles, Cut(8));
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].num_rows, 2);
}

TEST_F(PagedBatchTest, SplitsAreRoundedUpByLessThanAQuarter) {
  int last = 0;
  int different = 0;
  for (int count = 1; count <= 1024; ++count) {
    const int rounded = RoundedUp(count);
    ASSERT_GE(rounded, count);
    ASSERT_LT(4 * rounded, 5 * count);
    ASSERT_GE(rounded, last);
    different += rounded != last;
    last = rounded;
  }
  EXPECT_EQ(different, 8 + 7 * 4);
  const std::vector<RowContext> contexts = {{first_.data(), 128 * 9 - 1},
                                            {first_.data(), 128 * 9}};
  const auto tiles = CutTiles(contexts, Cut(1));
  EXPECT_EQ(CutChunks(tiles, Cut(1))[0].max_splits, 10);
}

}  // namespace
}  // namespace nacre::kernels::cuda
