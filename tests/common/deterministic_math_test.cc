// Accuracy against long double, and golden bits: a change in the order of a sum
// would move tokens of requests with temperature.

#include "common/deterministic_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace nacre {
namespace {

constexpr long double kUnit = 0x1p-23L;  // one unit in the last place of 1

std::vector<uint32_t> EdgeAndRandomBits() {
  std::vector<uint32_t> values = {0,           1,
                                  2,
                                  1257966796u,  // u near 1 - sqrt(1/2)
                                  3037000499u,  // u near sqrt(1/2)
                                  3037000500u, (1u << 31) - 1,
                                  1u << 31,    (1u << 31) + 1,
                                  0xFFFFFFFEu, 0xFFFFFFFFu};
  std::mt19937 generator(7);
  for (int i = 0; i < 200000; ++i) values.push_back(generator());
  for (int shift = 0; shift < 32; ++shift) {  // both ends, every magnitude
    values.push_back(1u << shift);
    values.push_back(~(1u << shift));
    values.push_back(~0u >> shift);
    values.push_back(~(~0u >> shift));
  }
  return values;
}

long double Uniform(uint32_t x) { return (x + 0.5L) * 0x1p-32L; }

TEST(DeterministicMathTest, LogIsAccurateForNormalNumbers) {
  std::mt19937 generator(1);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t bits =
        0x00800000u + generator() % (0x7F800000u - 0x00800000u);
    const float x = std::bit_cast<float>(bits);
    const long double expected = std::log(static_cast<long double>(x));
    // Near 1 the exponent is 0 and the error is one of ln itself.
    ASSERT_NEAR(DeterministicLog(x), expected,
                2 * kUnit * std::max(std::abs(expected), 0x1p-30L))
        << x;
  }
  EXPECT_EQ(DeterministicLog(1.0f), 0.0f);
}

TEST(DeterministicMathTest, LogIsAccurateAroundOne) {
  for (int step = -200000; step <= 200000; ++step) {
    const float x = 1.0f + static_cast<float>(step) * 0x1p-20f;
    const long double expected = std::log(static_cast<long double>(x));
    ASSERT_NEAR(DeterministicLog(x), expected, 4 * kUnit * std::abs(expected))
        << x;
  }
}

TEST(DeterministicMathTest, ExpIsAccurateFromEndToEnd) {
  for (int step = -87 * 4096; step <= 88 * 4096; ++step) {
    const float x = static_cast<float>(step) / 4096.0f;
    const long double expected = std::exp(static_cast<long double>(x));
    ASSERT_NEAR(DeterministicExp(x) / expected, 1.0L, 3 * kUnit) << x;
  }
  EXPECT_EQ(DeterministicExp(0.0f), 1.0f);
  EXPECT_EQ(DeterministicExp(-88.0f), 0.0f);
  EXPECT_EQ(DeterministicExp(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(DeterministicMathTest, NegativeLogUniformIsAccurateUpToUNearOne) {
  for (const uint32_t x : EdgeAndRandomBits()) {
    const long double expected = -std::log(Uniform(x));
    ASSERT_NEAR(NegativeLogUniform(x) / expected, 1.0L, 4 * kUnit) << x;
  }
}

TEST(DeterministicMathTest, NegativeLogUniformStaysInItsBounds) {
  EXPECT_GT(NegativeLogUniform(0xFFFFFFFFu), 1e-10f);
  EXPECT_LT(NegativeLogUniform(0), 23.0f);
}

TEST(DeterministicMathTest, GumbelIsAccurate) {
  for (const uint32_t x : EdgeAndRandomBits()) {
    const long double expected = -std::log(-std::log(Uniform(x)));
    ASSERT_NEAR(GumbelFromBits(x), expected,
                6 * kUnit * std::max(std::abs(expected), 1.0L))
        << x;
  }
}

TEST(DeterministicMathTest, GumbelNeverFallsAndKeepsItsBound) {
  std::vector<uint32_t> values = EdgeAndRandomBits();
  std::sort(values.begin(), values.end());
  float before = -std::numeric_limits<float>::infinity();
  for (const uint32_t x : values) {
    const float gumbel = GumbelFromBits(x);
    ASSERT_GE(gumbel, before) << x;
    before = gumbel;
  }
  EXPECT_LT(GumbelFromBits(0xFFFFFFFFu), kMaxGumbel);
  EXPECT_GT(GumbelFromBits(0xFFFFFFFFu), kMaxGumbel - 0.1f);
}

TEST(DeterministicMathTest, BitsNeverChange) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  EXPECT_EQ(bits(DeterministicLog(0x1.8p0f)), 0x3ECF9920u);
  EXPECT_EQ(bits(DeterministicLog(10.0f)), 0x40135D8Eu);
  EXPECT_EQ(bits(DeterministicLog(1e-30f)), 0xC28A27B5u);
  EXPECT_EQ(bits(DeterministicExp(1.0f)), 0x402DF854u);
  EXPECT_EQ(bits(DeterministicExp(-0.1f)), 0x3F67A36Du);
  EXPECT_EQ(bits(DeterministicExp(-80.3f)), 0x058E2E4Fu);
  EXPECT_EQ(bits(NegativeLogUniform(0)), 0x41B6FDA9u);
  EXPECT_EQ(bits(NegativeLogUniform(0x7FFFFFFFu)), 0x3F317218u);
  EXPECT_EQ(bits(NegativeLogUniform(0x80000000u)), 0x3F317218u);
  EXPECT_EQ(bits(NegativeLogUniform(0xFFFFFFFFu)), 0x2F000000u);
  EXPECT_EQ(bits(GumbelFromBits(0)), 0xC04851D5u);
  EXPECT_EQ(bits(GumbelFromBits(123456789u)), 0xBFA224F4u);
  EXPECT_EQ(bits(GumbelFromBits(0xFFFFFFFFu)), 0x41B6FDA9u);
}

}  // namespace
}  // namespace nacre
