#include "model/rope.h"

#include <cmath>

#include "common/check.h"

namespace nacre::model {
namespace {

constexpr double kPi = 3.14159265358979323846;

// `inverse_frequency` stretched for Llama 3's long context.
float ScaleLlama3(float inverse_frequency, const RopeScaling& scaling) {
  const float factor = static_cast<float>(scaling.factor);
  const float low = static_cast<float>(scaling.low_freq_factor);
  const float high = static_cast<float>(scaling.high_freq_factor);
  const double context = scaling.original_max_position_embeddings;
  const float wavelength = static_cast<float>(2 * kPi) / inverse_frequency;
  if (wavelength > static_cast<float>(context / scaling.low_freq_factor)) {
    return inverse_frequency / factor;
  }
  if (wavelength < static_cast<float>(context / scaling.high_freq_factor)) {
    return inverse_frequency;
  }
  const float smooth =
      (static_cast<float>(context) / wavelength - low) / (high - low);
  return (1.0f - smooth) * inverse_frequency / factor +
         smooth * inverse_frequency;
}

}  // namespace

std::vector<float> InverseFrequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  std::vector<float> result(static_cast<size_t>(config.head_dim) / 2);
  for (size_t j = 0; j < result.size(); ++j) {
    const float exponent =
        static_cast<float>(2 * j) / static_cast<float>(config.head_dim);
    float inverse = 1.0f / static_cast<float>(
                               std::pow(static_cast<float>(config.rope_theta),
                                        static_cast<double>(exponent)));
    if (scaling.type == RopeScaling::Type::kLinear) {
      inverse /= static_cast<float>(scaling.factor);
    } else if (scaling.type == RopeScaling::Type::kLlama3) {
      inverse = ScaleLlama3(inverse, scaling);
    }
    result[j] = inverse;
  }
  return result;
}

RopeTable::RopeTable(const ModelConfig& config)
    : inverse_frequencies_(InverseFrequencies(config)) {}

void RopeTable::Reserve(int length) {
  const size_t count =
      static_cast<size_t>((length + kGrowth - 1) / kGrowth * kGrowth) *
      inverse_frequencies_.size();
  if (count <= cos_.capacity()) return;
  cos_.reserve(count);
  sin_.reserve(count);
}

void RopeTable::Extend(int position) {
  if (position < num_positions_) return;
  const int count = (position / kGrowth + 1) * kGrowth;
  Reserve(count);
  for (int p = num_positions_; p < count; ++p) {
    for (const float inverse : inverse_frequencies_) {
      // The angle is rounded to float32 as in Hugging Face. Its cosine is taken
      // in double, so that rounding it gives the same bits with every libm.
      const double angle = static_cast<float>(p) * inverse;
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  num_positions_ = count;
}

absl::Span<const float> RopeTable::Cos(int position) const {
  NACRE_CHECK(position < num_positions_, "position not covered by Extend");
  const size_t half = inverse_frequencies_.size();
  return {cos_.data() + static_cast<size_t>(position) * half, half};
}

absl::Span<const float> RopeTable::Sin(int position) const {
  NACRE_CHECK(position < num_positions_, "position not covered by Extend");
  const size_t half = inverse_frequencies_.size();
  return {sin_.data() + static_cast<size_t>(position) * half, half};
}

}  // namespace nacre::model
