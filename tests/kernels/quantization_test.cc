// The scalar definition of quantized weights and activations.

#include "kernels/quantization.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

TEST(QuantizeWeightsTest, Int8ErrsByHalfAStepAtMost) {
  const int count = QuantizedGroupSize(WeightType::kInt8);
  ASSERT_EQ(count, 64);
  const auto values = RandomFloats(count, 1, 3.0f);
  std::vector<int8_t> integers(count);
  const float scale =
      QuantizeWeights(values.data(), WeightType::kInt8, integers.data());
  EXPECT_EQ(scale, FromBF16(ToBF16(scale)));
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  EXPECT_NEAR(scale, largest / 127, largest / 127 * 0x1p-8);
  for (int i = 0; i < count; ++i) {
    // The largest may be cut off, by the rounding of the scale.
    EXPECT_NEAR(integers[i] * scale, values[i], scale) << i;
    if (std::abs(integers[i]) < 127) {
      EXPECT_NEAR(integers[i] * scale, values[i], 0.5001f * scale) << i;
    }
  }
}

TEST(QuantizeWeightsTest, Int4MeetsTheLargestMagnitude) {
  const int count = QuantizedGroupSize(WeightType::kInt4);
  ASSERT_EQ(count, 32);
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> values(count, 0.0f);
    values[5] = sign * 4.0f;  // scale -+0.5, a bf16 value
    values[6] = sign * -3.5f;
    values[7] = sign * -4.0f;  // one step beyond what 4 bits hold
    values[8] = sign * 0.6f;
    std::vector<int8_t> integers(count);
    const float scale =
        QuantizeWeights(values.data(), WeightType::kInt4, integers.data());
    EXPECT_EQ(scale, sign * -0.5f);
    EXPECT_EQ(integers[5], -8);
    EXPECT_EQ(integers[6], 7);
    EXPECT_EQ(integers[7], 7);
    EXPECT_EQ(integers[8], -1);
    EXPECT_EQ(integers[0], 0);
  }
}

TEST(QuantizeWeightsTest, ZerosAndDenormalsAreFinite) {
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
    for (const float value : {0.0f, 1e-45f, 1e-39f, 1e38f}) {
      std::vector<float> values(QuantizedGroupSize(type), value);
      std::vector<int8_t> integers(values.size());
      const float scale = QuantizeWeights(values.data(), type, integers.data());
      EXPECT_TRUE(std::isfinite(scale));
      EXPECT_NEAR(integers[0] * scale, value, value * 0x1p-7 + 2e-39) << value;
    }
  }
}

TEST(QuantizeActivationsTest, RoundsToNearestTiesToEven) {
  std::vector<float> values(64, 0.0f);
  values[0] = -127.0f;
  values[1] = 2.5f;
  values[2] = 3.5f;
  values[3] = -0.6f;
  std::vector<int8_t> integers(64);
  EXPECT_EQ(QuantizeActivations(values.data(), 64, integers.data()), 1.0f);
  EXPECT_EQ(integers[0], -127);
  EXPECT_EQ(integers[1], 2);
  EXPECT_EQ(integers[2], 4);
  EXPECT_EQ(integers[3], -1);
}

TEST(QuantizeActivationsTest, TinyValuesAreZeros) {
  std::vector<float> values(32, 0x1p-101f);
  std::vector<int8_t> integers(32, 1);
  EXPECT_EQ(QuantizeActivations(values.data(), 32, integers.data()), 0.0f);
  EXPECT_EQ(integers, std::vector<int8_t>(32, 0));
}

TEST(QuantizeActivationsTest, WhatIsNotFiniteMakesTheScaleNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(64, 1.0f);
    values[63] = bad;
    std::vector<int8_t> integers(64);
    EXPECT_TRUE(
        std::isnan(QuantizeActivations(values.data(), 64, integers.data())));
  }
}

}  // namespace
}  // namespace nacre::kernels
