#include "model/matrix_slice.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int kRows = 5;
constexpr int kCols = 4;

// 0, 1, 2, ... by rows.
std::vector<float> Numbers() {
  std::vector<float> values(kRows * kCols);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// Notes what was asked of it. Computes rows, or shows them where they lie.
class NotedRows : public kernels::RowSource {
 public:
  explicit NotedRows(bool computes) : computes_(computes) {}

  const void* Read(int first, int count,
                   std::vector<char>* scratch) const override {
    read_.emplace_back(first, count);
    const float* const from = values_.data() + first * kCols;
    if (!computes_) return from;
    scratch->resize(static_cast<size_t>(count) * kCols * sizeof(float));
    std::memcpy(scratch->data(), from, scratch->size());
    return scratch->data();
  }
  void GiveBack(int first, int count) const override {
    given_back_.emplace_back(first, count);
  }

  const std::vector<std::pair<int, int>>& read() const { return read_; }
  const std::vector<std::pair<int, int>>& given_back() const {
    return given_back_;
  }

 private:
  const bool computes_;
  const std::vector<float> values_ = Numbers();
  mutable std::vector<std::pair<int, int>> read_;
  mutable std::vector<std::pair<int, int>> given_back_;
};

std::vector<float> ReadRows(const MatrixSlice& slice, int first, int count) {
  std::vector<char> scratch;
  const size_t size =
      static_cast<size_t>(count) * static_cast<size_t>(slice.matrix().cols);
  std::vector<float> values(size);
  std::memcpy(values.data(), slice.Read(first, count, &scratch),
              size * sizeof(float));
  return values;
}

TEST(MatrixSliceTest, HasTheRowsAndColumnsOfItsRange) {
  const std::vector<float> values = Numbers();
  const NotedRows shown(false), computed(true);
  for (const kernels::HostMatrix& whole :
       {kernels::HostMatrix{kernels::DType::kF32, values.data(), kRows, kCols},
        kernels::HostMatrix{kernels::DType::kF32, nullptr, kRows, kCols,
                            &shown},
        kernels::HostMatrix{kernels::DType::kF32, nullptr, kRows, kCols,
                            &computed}}) {
    const MatrixSlice columns(whole, {1, 3, 2, 2});
    EXPECT_EQ(columns.matrix().rows, 3);
    EXPECT_EQ(columns.matrix().cols, 2);
    EXPECT_THAT(ReadRows(columns, 0, 2), ElementsAre(6, 7, 10, 11));
    EXPECT_THAT(ReadRows(columns, 2, 1), ElementsAre(14, 15));
    const MatrixSlice rows(whole, {3, 2, 0, kCols});
    EXPECT_THAT(ReadRows(rows, 1, 1), ElementsAre(16, 17, 18, 19));
  }
}

TEST(MatrixSliceTest, ReadsAndGivesBackItsOwnRowsOnly) {
  const NotedRows source(false);
  const MatrixSlice slice(
      {kernels::DType::kF32, nullptr, kRows, kCols, &source}, {2, 2, 1, 1});
  ReadRows(slice, 0, 2);
  slice.GiveBack(1, 1);
  EXPECT_THAT(source.read(), ElementsAre(Pair(2, 2)));
  EXPECT_THAT(source.given_back(), ElementsAre(Pair(3, 1)));
}

// Blocks of two values in three bytes.
class RowsInBlocks : public NotedRows {
 public:
  RowsInBlocks() : NotedRows(true) {}
  const void* Blocks(int row) const override { return &bytes_[6 * row]; }

 private:
  const char bytes_[6 * kRows] = {};
};

TEST(MatrixSliceTest, WholeBlocksStayBlocks) {
  kernels::WeightGroups groups = {};
  groups.block = 2;
  groups.block_bytes = 3;
  const RowsInBlocks source;
  const kernels::HostMatrix whole = {
      kernels::DType::kF32, nullptr, kRows, kCols, &source, &groups};
  const MatrixSlice second(whole, {1, 3, 2, 2});
  EXPECT_EQ(second.matrix().groups, &groups);
  EXPECT_EQ(second.matrix().source->Blocks(2),
            static_cast<const char*>(source.Blocks(3)) + 3);
  EXPECT_THAT(ReadRows(second, 0, 1), ElementsAre(6, 7));
  for (const MatrixRange& range :
       {MatrixRange{0, kRows, 1, 2}, MatrixRange{0, kRows, 0, 3}}) {
    const MatrixSlice part(whole, range);
    EXPECT_EQ(part.matrix().groups, nullptr);
    EXPECT_EQ(part.Blocks(0), nullptr);
  }
  EXPECT_THAT(ReadRows(MatrixSlice(whole, {0, kRows, 1, 2}), 1, 1),
              ElementsAre(5, 6));
}

TEST(MatrixSliceTest, CountsElementsOfTwoBytes) {
  const std::vector<uint16_t> values = {1, 2, 3, 4, 5, 6};
  const MatrixSlice slice({kernels::DType::kBF16, values.data(), 2, 3},
                          {0, 2, 1, 2});
  std::vector<char> scratch;
  uint16_t read[4];
  std::memcpy(read, slice.Read(0, 2, &scratch), sizeof(read));
  EXPECT_THAT(read, ElementsAre(2, 3, 5, 6));
}

}  // namespace
}  // namespace nacre::model
