// The reference backend against values worked out by hand.

#include "kernels/reference/reference_backend.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

TEST(ReferenceBackendTest, MatMulMultipliesByTheTransposedWeights) {
  ReferenceBackend backend(WeightType::kAuto);
  const std::vector<float> first = {1, 2, 3};
  const std::vector<float> second = {0, 1, 0, -1, 0, 1};
  const std::vector<HostMatrix> parts = {{DType::kF32, first.data(), 1, 3},
                                         {DType::kF32, second.data(), 2, 3}};
  const auto w = backend.Pack(parts);
  ASSERT_TRUE(w.ok());
  EXPECT_EQ((*w)->rows(), 3);
  EXPECT_EQ((*w)->cols(), 3);
  const std::vector<float> x = {1, 1, 1, 2, 0, -1};
  std::vector<float> y(6);
  backend.MatMul(x.data(), 2, **w, y.data());
  EXPECT_THAT(y, ElementsAre(6, 1, 0, -1, 0, -3));
}

TEST(ReferenceBackendTest, RmsNormDividesByTheRootMeanSquare) {
  ReferenceBackend backend(WeightType::kAuto);
  const std::vector<float> x = {3, 4, 0, 0};
  const std::vector<float> weight = {1, 2, 3, 4};
  std::vector<float> out(4);
  backend.RmsNorm(x.data(), 1, 4, weight.data(), 0.0f, out.data());
  EXPECT_THAT(
      out, ElementsAre(FloatNear(1.2f, 1e-7f), FloatNear(3.2f, 3e-7f), 0, 0));
  backend.RmsNorm(x.data(), 1, 4, weight.data(), 18.75f, out.data());
  EXPECT_FLOAT_EQ(out[0], 0.6f);  // mean square 6.25 + 18.75 = 5 squared
}

TEST(ReferenceBackendTest, RopeTurnsTheTwoHalvesOfAHead) {
  ReferenceBackend backend(WeightType::kAuto);
  std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> cos = {0, 1};  // a quarter turn, and none
  const std::vector<float> sin = {1, 0};
  backend.Rope(x.data(), 1, 4, 1, 4, cos.data(), sin.data());
  EXPECT_THAT(x, ElementsAre(-3, 2, 1, 4));
}

TEST(ReferenceBackendTest, SiluMulGatesTheUpperHalf) {
  ReferenceBackend backend(WeightType::kAuto);
  const std::vector<float> gate_up = {0, 1, -200, 5, 2, 7};
  std::vector<float> out(3);
  backend.SiluMul(gate_up.data(), 1, 3, out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_FLOAT_EQ(out[1], 2.0f / (1.0f + std::exp(-1.0f)));
  EXPECT_NEAR(out[2], 0.0f, 1e-30f);
}

TEST(ReferenceBackendTest, AttentionAveragesTheValuesUpToItsOwnPosition) {
  ReferenceBackend backend(WeightType::kAuto);
  // Blocks of two positions in reverse order; equal keys give equal weights.
  std::vector<float> keys(2 * 1 * 2 * 2, 1.0f);
  std::vector<float> values(keys.size(), NAN);
  const KvLayer layer = {keys.data(), values.data(), 2, 1, 2, 2};
  const std::vector<int32_t> table = {1, 0};
  const std::vector<RowContext> rows = {
      {table.data(), 0}, {table.data(), 1}, {table.data(), 2}};
  const std::vector<float> k(3 * 2, 1.0f);
  const std::vector<float> v = {3, 0, 6, 0, 0, 9};
  backend.StoreKv(k.data(), v.data(), 2, rows, layer);
  EXPECT_EQ(values[4], 3.0f);  // position 0: block 1, offset 0
  EXPECT_EQ(values[0], 0.0f);  // position 2: block 0, offset 0
  // Two query heads share the KV head.
  const std::vector<float> q(3 * 4, 0.5f);
  std::vector<float> out(3 * 4);
  backend.Attention(q.data(), 4, 2, 1.0f, rows, layer, out.data());
  EXPECT_THAT(out, ElementsAre(3, 0, 3, 0, 4.5, 0, 4.5, 0, 3, 3, 3, 3));
}

TEST(ReferenceBackendTest, AttentionWeighsByTheExponentOfTheScore) {
  ReferenceBackend backend(WeightType::kAuto);
  std::vector<float> keys = {0, 1};
  std::vector<float> values = {0, 1};
  const KvLayer layer = {keys.data(), values.data(), 1, 1, 2, 1};
  const int32_t block = 0;
  const RowContext row = {&block, 1};
  const float q = 2.0f;
  float out = 0;
  backend.Attention(&q, 1, 1, 0.5f, {&row, 1}, layer, &out);
  EXPECT_FLOAT_EQ(out, std::exp(1.0f) / (1.0f + std::exp(1.0f)));
}

}  // namespace
}  // namespace nacre::kernels
