// The emulated tensor core against an H200 and against MMA-Sim, bit for bit
// (tests/data/kernels/README.md says what made the files).

#include "tests/kernels/cuda/emulation/tensor_core.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/tensor_core_cases.h"

namespace nacre::kernels::cuda {
namespace {

using emulation::Factors;
using emulation::FusedSum;

const std::string kData = NACRE_TEST_DATA "/kernels/";

// A chain of `steps` products for each element.
std::vector<uint32_t> TileSums(const TensorCoreTile& tile, int steps) {
  std::vector<uint32_t> sums;
  for (int row = 0; row < kTileRows; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      uint32_t sum = tile.Start(row, column);
      for (int step = 0; step < steps; ++step) {
        Factors left;
        Factors right;
        for (int i = 0; i < kTileInputs; ++i) {
          left.Set(i, tile.Left(step, row, i));
          right.Set(i, tile.Right(step, i, column));
        }
        sum = FusedSum(left, right, sum);
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

// Of a file of `tiles` tiles, or of as many as it has.
void ExpectSums(const std::string& file, int first_tile, int steps,
                absl::optional<int> tiles = absl::nullopt) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  std::vector<uint32_t> expected(bytes.size() / sizeof(uint32_t));
  ASSERT_FALSE(expected.empty()) << file;
  std::memcpy(expected.data(), bytes.data(), expected.size() * 4);
  const int there = static_cast<int>(expected.size() / kTileSums);
  ASSERT_EQ(expected.size(),
            size_t{kTileSums} * static_cast<size_t>(tiles.value_or(there)))
      << file;
  for (int i = 0; i < there; ++i) {
    const TensorCoreTile tile(first_tile + i);
    const std::vector<uint32_t> sums = TileSums(tile, steps);
    for (int j = 0; j < kTileSums; ++j) {
      ASSERT_EQ(sums[j], expected[i * kTileSums + j])
          << file << ", tile " << i << " ("
          << kCaseClassNames[tile.case_class()] << "), element " << j;
    }
  }
}

TEST(TensorCoreTest, GivesTheBitsOfAnH200) {
  ExpectSums(kData + "tensor_core_h200.u32", 0, 1, 4 * kCaseClasses);
  ExpectSums(kData + "tensor_core_h200_chains.u32", 0, 4, 4 * kCaseClasses);
}

TEST(TensorCoreTest, GivesTheBitsOfMmaSim) {
  ExpectSums(kData + "tensor_core_mmasim.u32", 4800, 1, 4 * kCaseClasses);
}

// A longer one, of tests/data/kernels/make_tensor_core_goldens.py --tiles N.
TEST(TensorCoreTest, GivesTheBitsOfMmaSimsFile) {
  const char* const file = std::getenv("NACRE_MMASIM_SUMS");
  if (file == nullptr) GTEST_SKIP() << "NACRE_MMASIM_SUMS names no file";
  ExpectSums(file, 4800, 1);
}

// One product beside others that are zero.
float Sum(float a, float b, float sum) {
  Factors left;
  Factors right;
  for (int i = 0; i < kTileInputs; ++i) {
    const bool used = i == 5;
    left.Set(i, std::bit_cast<uint32_t>(used ? a : 0.0f) >> 16);
    right.Set(i, std::bit_cast<uint32_t>(used ? b : 0.0f) >> 16);
  }
  return std::bit_cast<float>(
      FusedSum(left, right, std::bit_cast<uint32_t>(sum)));
}

TEST(TensorCoreTest, CutsTowardZero) {
  const float below_one = 1 - std::ldexp(1.0f, -24);
  EXPECT_EQ(Sum(1, 1, std::ldexp(-1.0f, -25)), below_one);
  // A term's bits below 2^-25 of the largest are lost before they are added.
  EXPECT_EQ(Sum(1, 1, std::ldexp(-1.0f, -26)), 1);
  EXPECT_EQ(Sum(1, 1, below_one), 2 - std::ldexp(1.0f, -23));
  EXPECT_EQ(Sum(-1, 1, -below_one), -2 + std::ldexp(1.0f, -23));
}

TEST(TensorCoreTest, EndsOfTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float huge = std::ldexp(1.0f, 127);
  EXPECT_EQ(Sum(huge, 1, std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(Sum(huge, -1, -huge), -kInfinity);
  EXPECT_EQ(Sum(huge, huge, kInfinity), kInfinity);
  EXPECT_EQ(Sum(huge, 4, 0), kInfinity);
  EXPECT_TRUE(std::isnan(Sum(kInfinity, 0, 1)));
  EXPECT_TRUE(std::isnan(Sum(kInfinity, 1, -kInfinity)));
  const float nan = Sum(std::nanf(""), -1, 1);
  EXPECT_EQ(std::bit_cast<uint32_t>(nan), 0x7fffffff);
  // Subnormal numbers are numbers; a zero has no sign.
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Sum(0, 0, least), least);
  EXPECT_EQ(Sum(std::ldexp(1.0f, -100), std::ldexp(-1.0f, -49), 0), -least);
  EXPECT_EQ(std::bit_cast<uint32_t>(Sum(1, -0.0f, -0.0f)), 0u);
}

}  // namespace
}  // namespace nacre::kernels::cuda
