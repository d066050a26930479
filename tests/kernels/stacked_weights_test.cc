// Several matrices read as one.

#include "kernels/cpu/stacked_weights.h"

#include <array>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

using ::testing::ElementsAre;

// 2 rows of float32 behind 1 row of bf16, 3 columns each.
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
  weights_.Load(1, 64, 5, values.data());  // altogether behind
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

}  // namespace
}  // namespace nacre::kernels
