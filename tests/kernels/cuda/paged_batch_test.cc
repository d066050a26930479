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
    batch_ = std::make_unique<PagedBatch>(device_.get(), staging_.get());
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

TEST_F(PagedBatchTest, KeepsTheErrorWhereThereIsNoRoom) {
  emulation::settings.memory_bytes = emulation::counts.used_bytes;
  const std::vector<RowContext> contexts = {{first_.data(), 20}};
  batch_->SendRows(contexts, kBlockSize);
  EXPECT_EQ(device_->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
}

std::vector<std::pair<int, int>> Pairs(
    const std::vector<AttentionTile>& tiles) {
  std::vector<std::pair<int, int>> pairs;
  for (const AttentionTile& tile : tiles) {
    pairs.emplace_back(tile.first_row, tile.rows);
  }
  return pairs;
}

TEST_F(PagedBatchTest, TilesStopWhereASessionOrTheirRoomEnds) {
  const std::vector<RowContext> contexts = {
      {first_.data(), 0},  {first_.data(), 1},  {first_.data(), 2},
      {second_.data(), 0}, {second_.data(), 1}, {first_.data(), 3}};
  EXPECT_THAT(Pairs(CutTiles(contexts, 2)),
              ElementsAre(std::pair(0, 2), std::pair(2, 1), std::pair(3, 2),
                          std::pair(5, 1)));
  EXPECT_THAT(Pairs(CutTiles(contexts, 8)),
              ElementsAre(std::pair(0, 3), std::pair(3, 2), std::pair(5, 1)));
  EXPECT_TRUE(CutTiles({}, 8).empty());
  EXPECT_EQ(AttentionTileRows(1), 8);
  EXPECT_EQ(AttentionTileRows(3), 2);
  EXPECT_EQ(AttentionTileRows(12), 1);
}

TEST_F(PagedBatchTest, ChunksHoldWhatFitsAndAtLeastOneTile) {
  std::vector<RowContext> contexts;
  for (const int position : {10, 11, 300, 301, 600, 601}) {
    contexts.push_back({first_.data(), position});
  }
  const std::vector<AttentionTile> tiles = CutTiles(contexts, 2);
  // 4 heads of 6 dimensions: 128 bytes a row and split; 3, then 5 splits.
  const auto chunks = CutChunks(contexts, tiles, 4, 6, 4 * 3 * 128);
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
  EXPECT_EQ(CutChunks(contexts, tiles, 4, 6, 0).size(), 3u);
  EXPECT_EQ(CutChunks(contexts, tiles, 4, 6, 1 << 20).size(), 1u);
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
  const auto tiles = CutTiles(contexts, 1);
  EXPECT_EQ(CutChunks(contexts, tiles, 1, 2, 1 << 20)[0].max_splits, 10);
}

}  // namespace
}  // namespace nacre::kernels::cuda
