#include "kernels/cuda/gemm_quantization.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/dtype.h"
#include "kernels/host_memory.h"
#include "kernels/quantization.h"
#include "kernels/weight_type.h"
#include "tests/kernels/cuda/packed_tile.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kRows = 21;
constexpr int kCols = 152;  // two blocks and a part

// Row 3 is all zeros.
std::vector<float> RandomRows() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kCols);
  for (float& value : values) value = normal(random);
  std::fill_n(values.begin() + 3 * kCols, kCols, 0.0f);
  return values;
}

HostMatrix Matrix(const std::vector<float>& values) {
  return {DType::kF32, values.data(), kRows, kCols};
}

PackedTile Int8Tile(const HostMatrix& matrix, int tile) {
  std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kInt8, kCols));
  QuantizeInt8Tile(matrix, tile, packed.data());
  return ReadTile(GemmFormat::kInt8, kCols, packed.data());
}

PackedTile Fp8Tile(const HostMatrix& matrix, int tile,
                   std::vector<float>& scales) {
  std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kFp8, kCols));
  QuantizeFp8Tile(matrix, tile, packed.data(), scales.data());
  return ReadTile(GemmFormat::kFp8, kCols, packed.data());
}

TEST(GemmQuantizationTest, Int8IsTheOneOfEveryBackend) {
  const std::vector<float> values = RandomRows();
  const int blocks = GemmBlocks(kCols);
  for (int row = 0; row < kRows; ++row) {
    const PackedTile tile = Int8Tile(Matrix(values), row / kTileOutputs);
    const int output = row % kTileOutputs;
    for (int block = 0; block < blocks; ++block) {
      float group[kBlockInputs] = {};
      const int first = block * kBlockInputs;
      std::copy_n(values.begin() + row * kCols + first,
                  std::min(kBlockInputs, kCols - first), group);
      int8_t expected[kBlockInputs];
      const float scale = QuantizeWeights(group, WeightType::kInt8, expected);
      EXPECT_EQ(FromBF16(tile.scales[output * blocks + block]), scale);
      for (int i = 0; i < kBlockInputs; ++i) {
        EXPECT_EQ(
            IntegerOf(tile.bytes[(output * blocks + block) * kBlockInputs + i]),
            expected[i]);
      }
    }
  }
}

TEST(GemmQuantizationTest, Int4IsTheOneOfEveryBackend) {
  const std::vector<float> values = RandomRows();
  constexpr int kGroup = 32;
  const int groups = 2 * GemmBlocks(kCols);
  for (int row = 0; row < kRows; ++row) {
    std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kInt4, kCols));
    QuantizeInt4Tile(Matrix(values), row / kTileOutputs, packed.data());
    const Int4Tile tile = ReadInt4Tile(kCols, packed.data());
    const int output = row % kTileOutputs;
    for (int group = 0; group < groups; ++group) {
      float of_group[kGroup] = {};
      const int first = group * kGroup;
      const int inside = std::clamp(kCols - first, 0, kGroup);
      std::copy_n(values.begin() + row * kCols + first, inside, of_group);
      int8_t expected[kGroup];
      const float scale =
          QuantizeWeights(of_group, WeightType::kInt4, expected);
      EXPECT_EQ(FromBF16(tile.scales[output * groups + group]), scale);
      for (int i = 0; i < inside; ++i) {
        EXPECT_EQ(tile.integers[(output * groups + group) * kGroup + i],
                  expected[i]);
      }
    }
  }
}

TEST(GemmQuantizationTest, Fp8HasOneScaleARow) {
  const std::vector<float> values = RandomRows();
  std::vector<float> scales(kRows, -1);
  const int columns = GemmBlocks(kCols) * kBlockInputs;
  for (int row = 0; row < kRows; ++row) {
    const PackedTile tile = Fp8Tile(Matrix(values), row / kTileOutputs, scales);
    const float* const from = values.data() + row * kCols;
    float largest = 0;
    for (int i = 0; i < kCols; ++i) {
      largest = std::max(largest, std::fabs(from[i]));
    }
    EXPECT_EQ(scales[row], largest / 448);
    for (int i = 0; i < kCols; ++i) {
      const uint8_t code = tile.bytes[row % kTileOutputs * columns + i];
      // Half a step of 1/8 of the value, or of the smallest step.
      const float bound =
          std::max(std::fabs(from[i]) / 16, scales[row] * 0x1p-10f) * 1.0001f;
      EXPECT_NEAR(FromE4m3(code) * scales[row], from[i], bound);
      if (std::fabs(from[i]) == largest && largest > 0) {
        EXPECT_EQ(code & 0x7f, 0x7e);
      }
    }
  }
  EXPECT_EQ(scales[3], 0);
}

TEST(GemmQuantizationTest, WritesTheScalesOfItsOwnRows) {
  const std::vector<float> values = RandomRows();
  std::vector<float> scales(kRows, -1);
  Fp8Tile(Matrix(values), 1, scales);
  EXPECT_EQ(std::count(scales.begin(), scales.end(), -1.0f), kTileOutputs);
  EXPECT_EQ(scales[15], -1);
  EXPECT_GT(scales[16], 0);
}

// bf16 rows are read as the numbers they are.
TEST(GemmQuantizationTest, TypesOfTheCheckpointDoNotMatter) {
  std::vector<float> values = RandomRows();
  std::vector<uint16_t> bits;
  for (float& value : values) {
    bits.push_back(ToBF16(value));
    value = FromBF16(bits.back());
  }
  const HostMatrix bf16 = {DType::kBF16, bits.data(), kRows, kCols};
  std::vector<float> scales(kRows), bf16_scales(kRows);
  for (const int tile : {0, 1}) {
    EXPECT_EQ(Int8Tile(Matrix(values), tile).bytes, Int8Tile(bf16, tile).bytes);
    EXPECT_EQ(Fp8Tile(Matrix(values), tile, scales).bytes,
              Fp8Tile(bf16, tile, bf16_scales).bytes);
  }
  EXPECT_EQ(scales, bf16_scales);
}

}  // namespace
}  // namespace nacre::kernels::cuda
