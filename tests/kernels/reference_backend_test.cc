// The reference backend against values worked out by hand.

#include "kernels/reference/reference_backend.h"

#include <cmath>
#include <cstring>
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
  std::vector<float> blocks(2 * 2 * 2 * 2, NAN);
  const KvLayer layer = {blocks.data(), 2, 1, 2, 2};
  const std::vector<int32_t> table = {1, 0};
  const std::vector<RowContext> rows = {
      {table.data(), 0}, {table.data(), 1}, {table.data(), 2}};
  const std::vector<float> k(3 * 2, 1.0f);
  const std::vector<float> v = {3, 0, 6, 0, 0, 9};
  backend.StoreKv(k.data(), v.data(), 2, rows, layer);
  EXPECT_EQ(blocks[12], 3.0f);  // position 0: block 1, offset 0
  EXPECT_EQ(blocks[4], 0.0f);   // position 2: block 0, offset 0
  // Two query heads share the KV head.
  const std::vector<float> q(3 * 4, 0.5f);
  std::vector<float> out(3 * 4);
  backend.Attention(q.data(), 4, 2, 1.0f, rows, layer, out.data());
  EXPECT_THAT(out, ElementsAre(3, 0, 3, 0, 4.5, 0, 4.5, 0, 3, 3, 3, 3));
}

TEST(ReferenceBackendTest, AttentionWeighsByTheExponentOfTheScore) {
  ReferenceBackend backend(WeightType::kAuto);
  std::vector<float> blocks = {0, 1, 0, 1};  // two keys, two values
  const KvLayer layer = {blocks.data(), 1, 1, 2, 1};
  const int32_t block = 0;
  const RowContext row = {&block, 1};
  const float q = 2.0f;
  float out = 0;
  backend.Attention(&q, 1, 1, 0.5f, {&row, 1}, layer, &out);
  EXPECT_FLOAT_EQ(out, std::exp(1.0f) / (1.0f + std::exp(1.0f)));
}

TEST(ReferenceBackendTest, KeysAndValuesLieWhereTheLayerSaysRoundedToItsType) {
  ReferenceBackend backend(WeightType::kAuto);
  // One block of two positions; 66 dimensions are a group of values and a rest.
  const int dims = 66;
  std::vector<float> k;
  std::vector<float> v;
  for (int d = 0; d < 2 * dims; ++d) {
    k.push_back(static_cast<float>(d));
    v.push_back(static_cast<float>(d + 500));
  }
  k[3] = 1.00390625f;   // half a step of bf16 above 1: to even, down
  v[65] = 1.01171875f;  // one and a half: to even, up
  const int32_t block = 0;
  const std::vector<RowContext> rows = {{&block, 0}, {&block, 1}};

  std::vector<float> f32(2 * 2 * dims);
  backend.StoreKv(k.data(), v.data(), dims, rows, {f32.data(), 1, 1, 2, dims});
  EXPECT_EQ(f32[2 * 3], k[3]);
  EXPECT_EQ(f32[2 * 3 + 1], k[dims + 3]);
  EXPECT_EQ(f32[2 * dims + 63], v[63]);
  EXPECT_EQ(f32[2 * dims + 64], v[dims]);
  EXPECT_EQ(f32[2 * dims + 2 * 64 + 1], v[65]);
  EXPECT_EQ(f32[2 * dims + 2 * 64 + 2], v[dims + 64]);

  std::vector<uint16_t> bf16(2 * 2 * dims);
  backend.StoreKv(k.data(), v.data(), dims, rows,
                  {bf16.data(), 1, 1, 2, dims, DType::kBF16});
  EXPECT_EQ(bf16[4 * 1 + 1], 0x3F80);  // dimension 3 of position 0: 1
  EXPECT_EQ(FromBF16(bf16[4 * 1 + 2]), k[dims + 2]);
  EXPECT_EQ(FromBF16(bf16[4 * 1 + 3]), k[dims + 3]);
  EXPECT_EQ(bf16[2 * dims + 2 * 64 + 1], 0x3F82);  // 1 + 2 / 128
  // Scores and outputs are those of the rounded numbers.
  const std::vector<float> q(dims, 0.0f);
  std::vector<float> out(dims);
  backend.Attention(q.data(), dims, 1, 1.0f, {rows.data(), 1},
                    {bf16.data(), 1, 1, 2, dims, DType::kBF16}, out.data());
  EXPECT_EQ(out[65], 1.015625f);
}

// One block of two positions of 66 dimensions: 68 bytes a position, keys in
// words of four, each half with its two scales behind it.
TEST(ReferenceBackendTest, IntegersHaveAScaleForEachPosition) {
  ReferenceBackend backend(WeightType::kAuto, DType::kInt8);
  constexpr int kDims = 66;
  constexpr int kHalf = 2 * 68 + 2 * 4;
  std::vector<float> k(2 * kDims, 0.0f);
  std::vector<float> v(2 * kDims, 0.0f);
  k[5] = -127.0f;
  k[6] = 2.5f;  // half a step: to even
  k[kDims + 65] = 254.0f;
  v[65] = 63.5f;
  v[3] = 0.75f;          // one and a half: to even
  v[kDims] = 0x1p-101f;  // taken to be 0
  const int32_t block = 0;
  const std::vector<RowContext> rows = {{&block, 0}, {&block, 1}};
  std::vector<int8_t> blocks(2 * kHalf, 99);
  const KvLayer layer = {blocks.data(), 1, 1, 2, kDims, DType::kInt8};
  backend.StoreKv(k.data(), v.data(), kDims, rows, layer);
  EXPECT_EQ(blocks[1 * 8 + 1], -127);
  EXPECT_EQ(blocks[1 * 8 + 2], 2);
  EXPECT_EQ(blocks[1 * 8 + 4 + 1], 0);         // of position 1
  EXPECT_EQ(blocks[16 * 8 + 4 + 1], 127);      // its last dimension
  EXPECT_EQ(blocks[16 * 8 + 4 + 2], 0);        // what fills the word
  EXPECT_EQ(blocks[kHalf + 3], 2);             // 1.5
  EXPECT_EQ(blocks[kHalf + 2 * 64 + 1], 127);  // of the last group, 4 wide
  EXPECT_EQ(blocks[kHalf + 2 * 64 + 2], 0);
  const auto scale = [&](size_t at) {
    float value;
    std::memcpy(&value, blocks.data() + at, sizeof(value));
    return value;
  };
  EXPECT_EQ(scale(2 * 68), 1.0f);
  EXPECT_EQ(scale(2 * 68 + 4), 2.0f);
  EXPECT_EQ(scale(kHalf + 2 * 68), 0.5f);
  EXPECT_EQ(scale(kHalf + 2 * 68 + 4), 0.0f);
  // Outputs are those of the rounded numbers.
  const std::vector<float> q(kDims, 0.0f);
  std::vector<float> out(kDims);
  backend.Attention(q.data(), kDims, 1, 1.0f, {rows.data(), 1}, layer,
                    out.data());
  EXPECT_EQ(out[3], 1.0f);
  EXPECT_EQ(out[65], 63.5f);
}

}  // namespace
}  // namespace nacre::kernels
