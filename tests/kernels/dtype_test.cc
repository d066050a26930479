#include "kernels/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

TEST(DTypeTest, EveryF16ConvertsToTheValueItsBitsDefine) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float actual = FromF16(static_cast<uint16_t>(bits));
    const int exponent = (bits >> 10) & 0x1F;
    const int fraction = bits & 0x3FF;
    ASSERT_EQ(std::signbit(actual), (bits & 0x8000) != 0) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
      continue;
    }
    double expected = exponent == 31 ? std::numeric_limits<double>::infinity()
                      : exponent == 0
                          ? std::ldexp(fraction, -24)
                          : std::ldexp(1024 + fraction, exponent - 25);
    if (bits & 0x8000) expected = -expected;
    ASSERT_EQ(double{actual}, expected) << bits;
  }
}

TEST(DTypeTest, EveryBF16ConvertsToTheValueItsBitsDefine) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float actual = FromBF16(static_cast<uint16_t>(bits));
    const int exponent = (bits >> 7) & 0xFF;
    const int fraction = bits & 0x7F;
    ASSERT_EQ(std::signbit(actual), (bits & 0x8000) != 0) << bits;
    if (exponent == 255 && fraction != 0) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
      continue;
    }
    double expected = exponent == 255 ? std::numeric_limits<double>::infinity()
                      : exponent == 0
                          ? std::ldexp(fraction, -133)
                          : std::ldexp(128 + fraction, exponent - 134);
    if (bits & 0x8000) expected = -expected;
    ASSERT_EQ(double{actual}, expected) << bits;
  }
}

TEST(DTypeTest, EveryBF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = FromBF16(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(FromBF16(ToBF16(value)))) << bits;
    } else {
      ASSERT_EQ(ToBF16(value), half);
    }
  }
}

TEST(DTypeTest, ToBF16RoundsToNearestAndTiesToEven) {
  const auto round = [](uint32_t bits) {
    return ToBF16(std::bit_cast<float>(bits));
  };
  EXPECT_EQ(round(0x3F807FFF), 0x3F80);  // just below the middle
  EXPECT_EQ(round(0x3F808000), 0x3F80);  // middle: down to even
  EXPECT_EQ(round(0x3F818000), 0x3F82);  // middle: up to even
  EXPECT_EQ(round(0x3F808001), 0x3F81);  // just above the middle
  EXPECT_EQ(round(0x7F7FFFFF), 0x7F80);  // the largest float becomes infinity
  EXPECT_EQ(round(0x00008001), 0x0001);  // denormals stay
  EXPECT_TRUE(std::isnan(FromBF16(round(0x7F800001))));  // NaN below the cut
}

}  // namespace
}  // namespace nacre::kernels
