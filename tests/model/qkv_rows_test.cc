#include "model/qkv_rows.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;

// Two heads of four elements.
ModelConfig Config(double rotary_share, QkvLayout layout) {
  ModelConfig config;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 4;
  config.rope.share = rotary_share;
  config.blocks.qkv_layout = layout;
  return config;
}

std::vector<float> Numbers(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

// Of a matrix of two columns, the first of each row.
std::vector<float> FirstColumn(const kernels::HostMatrix& matrix) {
  EXPECT_EQ(matrix.cols, 2);
  const auto* const values = static_cast<const float*>(matrix.data);
  std::vector<float> column;
  for (int row = 0; row < matrix.rows; ++row) column.push_back(values[2 * row]);
  return column;
}

TEST(QkvRowsTest, PartsOfHeadsAreGathered) {
  const ModelConfig config = Config(1, QkvLayout::kByHead);
  const auto values = Numbers(24 * 2);
  std::string storage[3];
  const auto parts = SeparateQkv(
      config, {kernels::DType::kF32, values.data(), 24, 2}, storage);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(FirstColumn(parts[0]), ElementsAre(0, 2, 4, 6, 24, 26, 28, 30));
  EXPECT_THAT(FirstColumn(parts[1]),
              ElementsAre(8, 10, 12, 14, 32, 34, 36, 38));
  EXPECT_THAT(FirstColumn(parts[2]),
              ElementsAre(16, 18, 20, 22, 40, 42, 44, 46));
  auto biases = Numbers(24);
  SeparateQkv(config, &biases);
  EXPECT_THAT(biases, ElementsAre(0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 16,
                                  17, 18, 19, 8, 9, 10, 11, 20, 21, 22, 23));
}

TEST(QkvRowsTest, StackedPartsStayWhereTheyAre) {
  ModelConfig config = Config(1, QkvLayout::kStacked);
  config.num_key_value_heads = 1;
  const auto values = Numbers(16 * 2);
  std::string storage[3];
  const auto parts = SeparateQkv(
      config, {kernels::DType::kF32, values.data(), 16, 2}, storage);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].data, values.data());
  EXPECT_EQ(parts[0].rows, 8);
  EXPECT_THAT(FirstColumn(parts[1]), ElementsAre(16, 18, 20, 22));
  EXPECT_THAT(FirstColumn(parts[2]), ElementsAre(24, 26, 28, 30));
  auto biases = Numbers(16);
  SeparateQkv(config, &biases);
  EXPECT_EQ(biases, Numbers(16));
}

TEST(QkvRowsTest, PairsThatTurnComeToLieHalfAHeadApart) {
  const HeadOrder order(Config(0.5, QkvLayout::kStacked));
  auto values = Numbers(12);
  order.Apply(8, &values);  // what is past two heads stays
  EXPECT_THAT(values, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11));
  const auto rows = Numbers(8 * 2);
  kernels::HostMatrix matrix = {kernels::DType::kF32, rows.data(), 8, 2};
  std::string storage;
  order.Apply(&matrix, &storage);
  EXPECT_THAT(FirstColumn(matrix), ElementsAre(0, 4, 2, 6, 8, 12, 10, 14));
}

TEST(QkvRowsTest, HeadsThatTurnWholeStayAsTheyAre) {
  const HeadOrder order(Config(1, QkvLayout::kStacked));
  auto values = Numbers(8);
  order.Apply(8, &values);
  EXPECT_EQ(values, Numbers(8));
}

}  // namespace
}  // namespace nacre::model
