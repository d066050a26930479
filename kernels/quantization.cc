#include "kernels/quantization.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "kernels/dtype.h"

namespace nacre::kernels {
namespace {

constexpr int kInt8Group = 64;
constexpr int kInt4Group = 32;

// The value of the largest magnitude, the first of equals.
float Largest(const float* values, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(values[i]) > std::fabs(largest)) largest = values[i];
  }
  return largest;
}

}  // namespace

int QuantizedGroupSize(WeightType type) {
  switch (type) {
    case WeightType::kInt8:
      return kInt8Group;
    case WeightType::kInt4:
      return kInt4Group;
    case WeightType::kAuto:
    case WeightType::kBF16:
    case WeightType::kBF16A16:
    case WeightType::kF32:
    case WeightType::kFp8:
      return 0;
  }
  return 0;
}

float QuantizeWeights(const float* values, WeightType type, int8_t* out) {
  const int count = QuantizedGroupSize(type);
  NACRE_CHECK(count > 0, "weights of this type are not quantized");
  const float largest = Largest(values, count);
  const int lowest = type == WeightType::kInt8 ? -127 : -8;
  const int highest = type == WeightType::kInt8 ? 127 : 7;
  const float exact =
      type == WeightType::kInt8 ? std::fabs(largest) / 127 : largest / -8;
  const float scale = FromBF16(ToBF16(exact));
  if (scale == 0) {
    std::fill(out, out + count, int8_t{0});
    return scale;
  }
  // Divided in double: the inverse of a tiny float32 scale is not finite. At
  // this size doubles are whole numbers: to add it rounds, ties to even. The
  // compiler can do several at a time, which it cannot with nearbyint.
  constexpr double kRound = 0x1.8p52;
  for (int i = 0; i < count; ++i) {
    const double steps = double{values[i]} / scale + kRound - kRound;
    out[i] = static_cast<int8_t>(std::clamp<double>(steps, lowest, highest));
  }
  return scale;
}

float QuantizeActivations(const float* values, int count, int8_t* out) {
  std::fill(out, out + count, int8_t{0});
  float largest = 0;
  for (int i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    largest = std::max(largest, std::fabs(values[i]));
  }
  if (largest < kSmallestActivation) return 0;
  const float inverse = 127.0f / largest;
  for (int i = 0; i < count; ++i) {
    out[i] = static_cast<int8_t>(std::nearbyint(values[i] * inverse));
  }
  return largest / 127.0f;
}

}  // namespace nacre::kernels
