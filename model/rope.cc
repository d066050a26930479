#include "model/rope.h"

#include <algorithm>
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

// The pair, as a real number, that turns so often within `context`.
double PairOfTurns(const ModelConfig& config, double turns) {
  return config.rotary_size() *
         std::log(config.rope.scaling.original_max_position_embeddings /
                  (turns * 2 * kPi)) /
         (2 * std::log(config.rope.theta));
}

// `frequency` stretched by YaRN: pairs that turn often stay, those that turn
// seldom are divided by the factor, with a ramp in between.
float ScaleYarn(float frequency, size_t pair, const ModelConfig& config) {
  const RopeScaling& scaling = config.rope.scaling;
  double low = PairOfTurns(config, scaling.beta_fast);
  double high = PairOfTurns(config, scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.rotary_size() - 1.0);
  if (low == high) high += 0.001;
  const float ramp =
      std::clamp((static_cast<float>(pair) - static_cast<float>(low)) /
                     static_cast<float>(high - low),
                 0.0f, 1.0f);
  const float kept = 1.0f - ramp;
  const float inter = 1.0f / (static_cast<float>(scaling.factor) * frequency);
  return inter * (1.0f - kept) + 1.0f / frequency * kept;
}

}  // namespace

std::vector<float> InverseFrequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope.scaling;
  const int size = config.rotary_size();
  std::vector<float> result(static_cast<size_t>(config.rotary_pairs()));
  for (size_t j = 0; j < result.size(); ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(size);
    const float frequency = static_cast<float>(std::pow(
        static_cast<float>(config.rope.theta), static_cast<double>(exponent)));
    float inverse = 1.0f / frequency;
    switch (scaling.type) {
      case RopeScaling::Type::kDefault:
        break;
      case RopeScaling::Type::kLinear:
        inverse /= static_cast<float>(scaling.factor);
        break;
      case RopeScaling::Type::kLlama3:
        inverse = ScaleLlama3(inverse, scaling);
        break;
      case RopeScaling::Type::kYarn:
        inverse = ScaleYarn(frequency, j, config);
        break;
      case RopeScaling::Type::kLongRope:
        inverse =
            1.0f / (static_cast<float>(scaling.pair_factors[j]) * frequency);
        break;
    }
    result[j] = inverse;
  }
  return result;
}

RopeTable::RopeTable(const ModelConfig& config, bool local)
    : pairs_(static_cast<size_t>(config.head_dim) / 2) {
  ModelConfig used = config;
  if (local) {
    used.rope.theta = config.windows.rope_theta;
    used.rope.scaling = {};
  }
  inverse_frequencies_ = InverseFrequencies(used);
  magnitude_ = used.rope.scaling.magnitude;
}

void RopeTable::Reserve(int length) {
  const size_t count =
      static_cast<size_t>((length + kGrowth - 1) / kGrowth * kGrowth) * pairs_;
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
      cos_.push_back(static_cast<float>(std::cos(angle) * magnitude_));
      sin_.push_back(static_cast<float>(std::sin(angle) * magnitude_));
    }
    // Pairs that do not turn.
    cos_.resize(pairs_ * (static_cast<size_t>(p) + 1), 1.0f);
    sin_.resize(pairs_ * (static_cast<size_t>(p) + 1), 0.0f);
  }
  num_positions_ = count;
}

absl::Span<const float> RopeTable::Cos(int position) const {
  NACRE_CHECK(position < num_positions_, "position not covered by Extend");
  return {cos_.data() + static_cast<size_t>(position) * pairs_, pairs_};
}

absl::Span<const float> RopeTable::Sin(int position) const {
  NACRE_CHECK(position < num_positions_, "position not covered by Extend");
  return {sin_.data() + static_cast<size_t>(position) * pairs_, pairs_};
}

}  // namespace nacre::model
