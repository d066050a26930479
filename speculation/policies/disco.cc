#include "speculation/policies/disco.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "speculation/policies/mat_vec.h"

namespace nacre::speculation {
namespace {

class DiscoPolicy final : public LengthPolicy {
 public:
  DiscoPolicy(const DiscoWeights* weights, double threshold)
      : weights_(*weights), threshold_(threshold) {}

  RowNeeds needs() const override {
    return {.entropy = true, .top_probabilities = true};
  }

  LengthDecision Decide(const DraftRow& row) override {
    return Probability(row) >= threshold_ ? LengthDecision::kContinue
                                          : LengthDecision::kStop;
  }

 private:
  double Probability(const DraftRow& row) const {
    NACRE_CHECK(row.top_probabilities.size() == kTopProbabilities,
                "disco reads the largest probabilities");
    std::array<float, kDiscoInputs> input;
    std::copy(row.top_probabilities.begin(), row.top_probabilities.end(),
              input.begin());
    input[kTopProbabilities] = row.entropy;
    input[kTopProbabilities + 1] =
        kDiscoIndexScale * static_cast<float>(row.generated);
    return DiscoProbability(weights_, input);
  }

  const DiscoWeights& weights_;
  const double threshold_;
};

}  // namespace

absl::Status Validate(const DiscoWeights& weights) {
  const size_t width = weights.hidden_bias.size();
  if (width == 0 || weights.hidden_weight.size() != width * kDiscoInputs ||
      weights.output_weight.size() != width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "disco: hidden_bias has ", width, " values, hidden_weight ",
        weights.hidden_weight.size(), ", output_weight ",
        weights.output_weight.size(), "; for a width W >= 1 they have W, W * ",
        kDiscoInputs, " and W"));
  }
  if (!AllFinite(weights.hidden_weight) || !AllFinite(weights.hidden_bias) ||
      !AllFinite(weights.output_weight) ||
      !std::isfinite(weights.output_bias)) {
    return absl::InvalidArgumentError("disco: a weight is not a finite number");
  }
  return absl::OkStatus();
}

double DiscoProbability(const DiscoWeights& weights,
                        absl::Span<const float> inputs) {
  double sum = weights.output_bias;
  for (size_t i = 0; i < weights.hidden_bias.size(); ++i) {
    const float hidden =
        Dot(MatrixRow(weights.hidden_weight, i, kDiscoInputs), inputs) +
        weights.hidden_bias[i];
    sum += weights.output_weight[i] * std::max(hidden, 0.0f);
  }
  return 1.0 / (1.0 + std::exp(-sum));
}

std::unique_ptr<LengthPolicy> MakeDiscoPolicy(const DiscoWeights* weights,
                                              double threshold) {
  return std::make_unique<DiscoPolicy>(weights, threshold);
}

}  // namespace nacre::speculation
