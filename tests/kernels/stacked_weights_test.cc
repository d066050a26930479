// Several matrices read as one.

#include "kernels/cpu/stacked_weights.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace nacre::kernels {
namespace {

using ::testing::ElementsAre;

// 2 rows of float32 after 1 row of bf16, 3 columns each.
class StackedWeightsTest : public ::testing::Test {
 protected:
  const std::vector<uint16_t> bf16_ = {ToBF16(1), ToBF16(2), ToBF16(3)};
  const std::vector<float> f32_ = {4, 5, 6, 7, 8, 1.00390625f};
  const std::array<HostMatrix, 2> parts_ = {
      HostMatrix{DType::kBF16, bf16_.data(), 1, 3},
      HostMatrix{DType::kF32, f32_.data(), 2, 3}};
  const StackedWeights weights_{parts_};
};

TEST_F(StackedWeightsTest, RowsFollowEachOther) {
  EXPECT_EQ(weights_.rows(), 3);
  EXPECT_EQ(weights_.cols(), 3);
  EXPECT_EQ(weights_.Find(0).part, 0);
  EXPECT_EQ(weights_.Find(2).part, 1);
  EXPECT_EQ(weights_.Find(2).row, 1);
  EXPECT_DEATH(weights_.Find(3), "outside the weights");
}

TEST_F(StackedWeightsTest, LoadsWithZerosBehindTheLastColumn) {
  std::vector<float> values(5, -1.0f);
  weights_.Load(0, 1, 5, values.data());
  EXPECT_THAT(values, ElementsAre(2, 3, 0, 0, 0));
  weights_.Load(2, 0, 2, values.data());
  EXPECT_THAT(values, ElementsAre(7, 8, 0, 0, 0));
  values.assign(5, -1.0f);
  weights_.Load(1, 64, 5, values.data());  // altogether past
  EXPECT_THAT(values, ElementsAre(0, 0, 0, 0, 0));
}

TEST_F(StackedWeightsTest, LoadsAsBF16RoundedToEven) {
  std::vector<uint16_t> values(4, 9);
  weights_.LoadBF16(0, 0, 4, values.data());
  EXPECT_THAT(values, ElementsAre(bf16_[0], bf16_[1], bf16_[2], 0));
  weights_.LoadBF16(2, 1, 4, values.data());
  EXPECT_THAT(values, ElementsAre(ToBF16(8), ToBF16(1), 0, 0));
}

TEST_F(StackedWeightsTest, KnowsWhetherAllAreBF16) {
  EXPECT_FALSE(weights_.is_bf16());
  EXPECT_TRUE(StackedWeights({parts_.data(), 1}).is_bf16());
}

// Rows in memory, handed out one copy at a time, and counted.
class CountedRows : public RowSource {
 public:
  CountedRows(const void* data, size_t row_bytes, int rows)
      : data_(static_cast<const char*>(data)),
        row_bytes_(row_bytes),
        reads(static_cast<size_t>(rows)),
        given_back(static_cast<size_t>(rows)) {}

  const void* Read(int first, int count,
                   std::vector<char>* scratch) const override {
    const char* const from = data_ + static_cast<size_t>(first) * row_bytes_;
    scratch->assign(from, from + static_cast<size_t>(count) * row_bytes_);
    for (int i = first; i < first + count; ++i) ++reads[i];
    return scratch->data();
  }
  void GiveBack(int first, int count) const override {
    for (int i = first; i < first + count; ++i) ++given_back[i];
  }

 private:
  const char* data_;
  size_t row_bytes_;

 public:
  mutable std::vector<int> reads;
  mutable std::vector<int> given_back;
};

TEST_F(StackedWeightsTest, UnitsAreReadFromSourcesOnceAndGivenBack) {
  const CountedRows first(bf16_.data(), 6, 1);
  const CountedRows second(f32_.data(), 12, 2);
  const HostMatrix sources[] = {{DType::kBF16, nullptr, 1, 3, &first},
                                {DType::kF32, nullptr, 2, 3, &second}};
  const StackedWeights stacked(sources);
  std::vector<int> units;
  stacked.ForUnits(2, 0, 2, [&](const StackedWeights& rows, int unit) {
    units.push_back(unit);
    for (int row = 2 * unit; row < std::min(2 * unit + 2, 3); ++row) {
      std::vector<float> expected(3);
      std::vector<float> values(3);
      weights_.Load(row, 0, 3, expected.data());
      rows.Load(row, 0, 3, values.data());
      EXPECT_EQ(values, expected) << row;
      std::vector<uint16_t> expected_bf16(3);
      std::vector<uint16_t> bf16(3);
      weights_.LoadBF16(row, 0, 3, expected_bf16.data());
      rows.LoadBF16(row, 0, 3, bf16.data());
      EXPECT_EQ(bf16, expected_bf16) << row;
    }
  });
  EXPECT_THAT(units, ElementsAre(0, 1));
  EXPECT_THAT(first.reads, ElementsAre(1));
  EXPECT_THAT(second.reads, ElementsAre(1, 1));
  EXPECT_THAT(first.given_back, ElementsAre(1));
  EXPECT_THAT(second.given_back, ElementsAre(1, 1));
  // Some of the units: the second has the last row.
  stacked.ForUnits(2, 1, 2, [&](const StackedWeights& rows, int unit) {
    EXPECT_EQ(unit, 1);
    EXPECT_DEATH(rows.Find(1), "outside the weights");
    float value = 0;
    rows.Load(2, 0, 1, &value);
    EXPECT_EQ(value, 7);
  });
  EXPECT_THAT(first.reads, ElementsAre(1));
  EXPECT_THAT(second.reads, ElementsAre(1, 2));
}

// Every backend and type: from a source as from memory, to the bit, and of the
// size that was told.
TEST(RowSourceTest, PackedAsIfTheyWereInMemory) {
  constexpr int kRows = 83;
  constexpr int kCols = 70;
  constexpr int kMany = 40;  // rows of x
  std::vector<float> values(size_t{kRows} * kCols);
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
    halves[i] = ToBF16(values[i]);
  }
  const CountedRows f32_rows(values.data(), kCols * sizeof(float), kRows);
  const CountedRows bf16_rows(halves.data(), kCols * sizeof(uint16_t), kRows);
  for (const char* kind : {"cpu", "reference"}) {
    for (const char* type :
         {"auto", "f32", "bf16", "bf16a16", "int8", "int4"}) {
      SCOPED_TRACE(absl::StrCat(kind, " ", type));
      BackendOptions options;
      options.kind = kind;
      options.weights = type;
      const auto backend = *CreateBackend(options);
      const HostMatrix held[] = {{DType::kBF16, halves.data(), kRows, kCols},
                                 {DType::kF32, values.data(), kRows, kCols}};
      const HostMatrix sources[] = {
          {DType::kBF16, nullptr, kRows, kCols, &bf16_rows},
          {DType::kF32, nullptr, kRows, kCols, &f32_rows}};
      const auto expected = *backend->Pack(held);
      const auto packed = *backend->Pack(sources);
      EXPECT_EQ(packed->size_bytes(), expected->size_bytes());
      EXPECT_EQ(backend->PackedBytes(held), expected->size_bytes());
      EXPECT_EQ(backend->PackedBytes({held, 1}),
                (*backend->Pack({held, 1}))->size_bytes());
      std::vector<float> products(size_t{kMany} * 2 * kRows);
      std::vector<float> same(products.size());
      backend->MatMul(values.data(), kMany, *expected, products.data());
      backend->MatMul(values.data(), kMany, *packed, same.data());
      EXPECT_EQ(same, products);
      const std::vector<int32_t> ids = {0, 82, 7};
      for (const HostMatrix& matrix : sources) {
        const auto table = *backend->PackTable(matrix);
        std::vector<float> rows(ids.size() * kCols);
        backend->Embed(*table, ids, rows.data());
        for (size_t i = 0; i < rows.size(); ++i) {
          const size_t at = static_cast<size_t>(ids[i / kCols]) * kCols;
          ASSERT_EQ(rows[i], values[at + i % kCols]);
        }
      }
    }
  }
}

// The weight that is at fault is found again.
TEST(RowSourceTest, AWeightThatIsNotFiniteIsNamed) {
  std::vector<float> values(size_t{70} * 64, 1.0f);
  values[size_t{66} * 64 + 5] = std::numeric_limits<float>::infinity();
  const CountedRows rows(values.data(), 64 * sizeof(float), 70);
  BackendOptions options;
  options.kind = "cpu";
  options.weights = "int4";
  const auto backend = *CreateBackend(options);
  const HostMatrix matrix = {DType::kF32, nullptr, 70, 64, &rows};
  EXPECT_THAT(std::string(backend->Pack({&matrix, 1}).status().message()),
              ::testing::HasSubstr("weight [66, 5] of matrix 0 is inf"));
}

}  // namespace
}  // namespace nacre::kernels
