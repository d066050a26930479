#include "kernels/cuda/gemm_layout.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/packed_tile.h"

namespace nacre::kernels::cuda {
namespace {

// Distinct for neighbours, and every integer from -127 to 127.
int IntegerAt(int output, int input) {
  return (output * 37 + input) % 255 - 127;
}

TEST(GemmLayoutTest, Bytes) {
  EXPECT_EQ(PackedTileBytes(GemmFormat::kInt8, 64), 1056u);
  EXPECT_EQ(PackedTileBytes(GemmFormat::kFp8, 65), 2048u);
  EXPECT_EQ(PackedTileBytes(GemmFormat::kInt4, 65), 2u * 576);
  EXPECT_EQ(GemmWeightBytes(GemmFormat::kBf16, 17, 72), 2u * 2 * 2048);
  EXPECT_EQ(GemmWeightBytes(GemmFormat::kInt8, 17, 72), 2u * 2 * 1056);
  EXPECT_EQ(GemmWeightBytes(GemmFormat::kFp8, 1 << 20, 1 << 14),
            size_t{1} << 34);
}

TEST(GemmLayoutTest, ATileHasOutputsThatFollowEachOther) {
  for (int output = 0; output < 50; ++output) {
    EXPECT_EQ(OutputOf(output / 16, output % 16, kPlainPairs), output);
  }
}

TEST(GemmLayoutTest, ATileHasPairsOfOutputs) {
  // Two heads of 48, whose halves turn.
  EXPECT_EQ(OutputOf(0, 0, 24), 0);
  EXPECT_EQ(OutputOf(0, 7, 24), 7);
  EXPECT_EQ(OutputOf(0, 8, 24), 24);
  EXPECT_EQ(OutputOf(2, 7, 24), 23);
  EXPECT_EQ(OutputOf(2, 15, 24), 47);
  EXPECT_EQ(OutputOf(3, 0, 24), 48);
  EXPECT_EQ(OutputOf(5, 15, 24), 95);
  // Each output has one place.
  for (const int pairs_apart : {8, 16, 24, 48}) {
    std::set<int> outputs;
    for (int i = 0; i < 96; ++i) {
      outputs.insert(OutputOf(i / 16, i % 16, pairs_apart));
    }
    EXPECT_EQ(outputs.size(), 96u);
    EXPECT_EQ(*outputs.rbegin(), 95);
    // A tile of none.
    EXPECT_GE(FirstOutput(6, pairs_apart), 96);
  }
}

TEST(GemmLayoutTest, WhichOutputsHavePairs) {
  EXPECT_TRUE(HavePairs(96, 48));
  EXPECT_TRUE(HavePairs(96, 24));
  EXPECT_FALSE(HavePairs(96, 32));  // in one and a half
  EXPECT_FALSE(HavePairs(24, 12));
  EXPECT_FALSE(HavePairs(96, 0));
  EXPECT_FALSE(HavePairs(96, -8));
}

TEST(GemmLayoutTest, Int8TileOfAnySize) {
  for (const int outputs : {1, 8, 9, 16}) {
    for (const int inputs : {8, 64, 200}) {
      const int blocks = GemmBlocks(inputs);
      std::vector<int8_t> integers;
      std::vector<uint16_t> scales;
      for (int output = 0; output < outputs; ++output) {
        for (int i = 0; i < inputs; ++i) {
          integers.push_back(static_cast<int8_t>(IntegerAt(output, i)));
        }
        for (int block = 0; block < blocks; ++block) {
          scales.push_back(static_cast<uint16_t>(100 * output + block + 1));
        }
      }
      std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kInt8, inputs),
                                  0xee);
      PackInt8Tile(integers.data(), scales.data(), outputs, inputs,
                   packed.data());
      const PackedTile tile =
          ReadTile(GemmFormat::kInt8, inputs, packed.data());
      for (int output = 0; output < kTileOutputs; ++output) {
        for (int i = 0; i < blocks * kBlockInputs; ++i) {
          const bool inside = output < outputs && i < inputs;
          EXPECT_EQ(IntegerOf(tile.bytes[output * blocks * kBlockInputs + i]),
                    inside ? IntegerAt(output, i) : 0);
        }
        for (int block = 0; block < blocks; ++block) {
          EXPECT_EQ(tile.scales[output * blocks + block],
                    output < outputs ? 100 * output + block + 1 : 0);
        }
      }
    }
  }
}

// Distinct for neighbours, and every integer from -8 to 7.
int Int4At(int output, int input) {
  return (output * 7 + input * 5 + input / 16) % 16 - 8;
}

TEST(GemmLayoutTest, Int4TileOfAnySize) {
  for (const int outputs : {1, 8, 9, 16}) {
    for (const int inputs : {8, 64, 200}) {
      const int groups = 2 * GemmBlocks(inputs);
      std::vector<int8_t> integers;
      std::vector<uint16_t> scales;
      for (int output = 0; output < outputs; ++output) {
        for (int i = 0; i < inputs; ++i) {
          integers.push_back(static_cast<int8_t>(Int4At(output, i)));
        }
        for (int group = 0; group < groups; ++group) {
          scales.push_back(static_cast<uint16_t>(100 * output + group + 1));
        }
      }
      std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kInt4, inputs),
                                  0xee);
      PackInt4Tile(integers.data(), scales.data(), outputs, inputs,
                   packed.data());
      const Int4Tile tile = ReadInt4Tile(inputs, packed.data());
      const int columns = GemmBlocks(inputs) * kBlockInputs;
      for (int output = 0; output < kTileOutputs; ++output) {
        for (int i = 0; i < columns; ++i) {
          const bool inside = output < outputs && i < inputs;
          EXPECT_EQ(tile.integers[output * columns + i],
                    inside ? Int4At(output, i) : 0);
        }
        for (int group = 0; group < groups; ++group) {
          EXPECT_EQ(tile.scales[output * groups + group],
                    output < outputs ? 100 * output + group + 1 : 0);
        }
      }
    }
  }
}

TEST(GemmLayoutTest, Bf16TileOfAnySize) {
  for (const int outputs : {1, 8, 9, 16}) {
    for (const int inputs : {5, 8, 64, 203}) {
      std::vector<uint16_t> weights;
      for (int i = 0; i < outputs * inputs; ++i) {
        weights.push_back(static_cast<uint16_t>(i + 1));
      }
      std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kBf16, inputs),
                                  0xee);
      PackBf16Tile(weights.data(), outputs, inputs, packed.data());
      const std::vector<uint16_t> tile = ReadBf16Tile(inputs, packed.data());
      const int columns = GemmBlocks(inputs) * kBlockInputs;
      for (int output = 0; output < kTileOutputs; ++output) {
        for (int i = 0; i < columns; ++i) {
          const bool inside = output < outputs && i < inputs;
          EXPECT_EQ(tile[output * columns + i],
                    inside ? weights[output * inputs + i] : 0);
        }
      }
    }
  }
}

TEST(GemmLayoutTest, ZeroHasOneSign) {
  const std::vector<int8_t> integers(64, 0);
  const uint16_t scale = 0;
  std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kInt8, 64), 0xee);
  PackInt8Tile(integers.data(), &scale, 1, 64, packed.data());
  for (const uint8_t byte : packed) EXPECT_EQ(byte, 0);
}

TEST(GemmLayoutTest, Fp8CodesAreKept) {
  constexpr int kOutputs = 11;
  constexpr int kInputs = 136;
  std::vector<uint8_t> codes;
  for (int i = 0; i < kOutputs * kInputs; ++i) {
    codes.push_back(static_cast<uint8_t>(i % 251));
  }
  std::vector<uint8_t> packed(PackedTileBytes(GemmFormat::kFp8, kInputs), 0xee);
  PackFp8Tile(codes.data(), kOutputs, kInputs, packed.data());
  const PackedTile tile = ReadTile(GemmFormat::kFp8, kInputs, packed.data());
  const int columns = GemmBlocks(kInputs) * kBlockInputs;
  for (int output = 0; output < kTileOutputs; ++output) {
    for (int i = 0; i < columns; ++i) {
      const bool inside = output < kOutputs && i < kInputs;
      EXPECT_EQ(tile.bytes[output * columns + i],
                inside ? codes[output * kInputs + i] : 0);
    }
  }
}

}  // namespace
}  // namespace nacre::kernels::cuda
