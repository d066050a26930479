#include "model/quantized/dequantize.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using kernels::DType;
using ::testing::ElementsAre;

std::string WordsOf(const std::vector<uint32_t>& words) {
  return std::string(reinterpret_cast<const char*>(words.data()),
                     words.size() * 4);
}

TEST(PackedCodesTest, FollowTheWordsOfTheirFormat) {
  const std::string data = WordsOf({0x76543210, 0xFEDCBA98});
  PackedCodes codes;
  codes.data = data.data();
  codes.bits = 4;
  codes.stride = 2;
  EXPECT_EQ(codes.At(0, 0), 0);
  EXPECT_EQ(codes.At(0, 7), 7);
  EXPECT_EQ(codes.At(0, 9), 9);
  codes.packs_columns = true;  // [8, 2]
  EXPECT_EQ(codes.At(3, 0), 3);
  EXPECT_EQ(codes.At(3, 1), 11);
  codes.is_transposed = true;  // [2, 8]
  EXPECT_EQ(codes.At(1, 3), 11);
  codes.packs_columns = false;  // [16, 1]
  EXPECT_EQ(codes.At(9, 0), 9);
  codes.has_awq_order = true;  // lanes hold 0 2 4 6 1 3 5 7
  EXPECT_EQ(codes.At(1, 0), 4);
  EXPECT_EQ(codes.At(2, 0), 1);
  EXPECT_EQ(codes.At(6, 0), 3);
  codes.has_awq_order = false;
  codes.added = 0x11111111;  // what overflows goes to the next
  EXPECT_EQ(codes.At(0, 0), 1);
  EXPECT_EQ(codes.At(15, 0), 0);
  codes.bits = 8;
  codes.added = 0;
  EXPECT_EQ(codes.At(1, 0), 0x32);
}

TEST(CodeValuesTest, AreNumbers) {
  EXPECT_EQ(UnsignedValues()[200], 200);
  EXPECT_EQ(SignedValues()[200], -56);
  EXPECT_EQ(OffsetValues(4)[0], -8);
  EXPECT_EQ(OffsetValues(8)[255], 127);
}

TEST(CodeValuesTest, Float8HasNoInfinitiesAndTwoNans) {
  const CodeValues values = Float8Values();
  EXPECT_EQ(values[0x00], 0);
  EXPECT_TRUE(std::signbit(values[0x80]));
  EXPECT_EQ(values[0x01], 0x1p-9f);
  EXPECT_EQ(values[0x07], 7 * 0x1p-9f);
  EXPECT_EQ(values[0x08], 0x1p-6f);
  EXPECT_EQ(values[0x38], 1);
  EXPECT_EQ(values[0x7E], 448);
  EXPECT_EQ(values[0xFE], -448);
  EXPECT_TRUE(std::isnan(values[0x7F]));
  EXPECT_TRUE(std::isnan(values[0xFF]));
}

TEST(RoundToF16Test, EveryF16SurvivesAndWhatLiesBetweenGoesToTheNearest) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = kernels::FromF16(half);
    ASSERT_EQ(RoundToF16(value), half);
    ASSERT_EQ(RoundToF16(-value), half | 0x8000);
    const float next = bits == 0x7BFF
                           ? 65536.0f
                           : kernels::FromF16(static_cast<uint16_t>(bits + 1));
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(RoundToF16(middle), half + (half & 1)) << bits;  // ties to even
    ASSERT_EQ(RoundToF16(std::nextafter(middle, 0.0f)), half) << bits;
    ASSERT_EQ(RoundToF16(std::nextafter(middle, 1e6f)), half + 1) << bits;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RoundToF16(-infinity), 0xFC00);
  EXPECT_EQ(RoundToF16(0x1p-26f), 0);
  EXPECT_TRUE(std::isnan(
      kernels::FromF16(RoundToF16(std::numeric_limits<float>::quiet_NaN()))));
}

std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// More rows than are read at once, a last block that is not whole.
TEST(DequantizeTest, BlocksAndOrders) {
  QuantizedMatrix matrix;
  matrix.rows = 70;
  matrix.cols = 3;
  std::string codes(210, '\0');
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<char>(i);
  matrix.codes = {.data = codes.data(), .word_bytes = 1, .stride = 3};
  matrix.values = UnsignedValues();
  matrix.scale_type = DType::kF32;
  const float scales[] = {1, 2, 3, 4};
  matrix.scales = reinterpret_cast<const char*>(scales);
  matrix.block_rows = 60;
  matrix.block_cols = 2;
  matrix.scale_rows = 2;
  matrix.scale_cols = 2;
  std::vector<float> values = FloatsOf(Dequantize(matrix));
  ASSERT_EQ(values.size(), 210u);
  for (int i = 0; i < 210; ++i) {
    const int scale = 1 + i / 180 * 2 + i % 3 / 2;
    ASSERT_EQ(values[static_cast<size_t>(i)], i * scale) << i;
  }
  // Columns 1 and 2 of block 0, column 0 of block 1.
  const std::vector<int64_t> order = {1, 0, 0};
  matrix.column_blocks = order;
  values = FloatsOf(Dequantize(matrix));
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 3),
              ElementsAre(0, 1, 2));
  EXPECT_EQ(values[3], 6);
  EXPECT_EQ(values[207], 207 * 4);
  EXPECT_EQ(values[208], 208 * 3);
}

}  // namespace
}  // namespace nacre::model
