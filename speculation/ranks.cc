#include "speculation/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "common/check.h"

namespace nacre::speculation {
namespace {

constexpr double kPriorRanks = 4;
constexpr double kRankMemory = 64;
// Calibrations change slowly: a longer memory.
constexpr double kCalibrationMemory = 1024;
// The prior's tau counts as so much curvature, about ten positions' worth.
constexpr double kPriorCurvature = 10;

// Softmax of `scores` * inverse_tau.                    weights [scores.size()]
void FillRankWeights(absl::Span<const float> scores, double inverse_tau,
                     double* weights) {
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    // The first is the largest: no overflow.
    weights[i] =
        std::exp(inverse_tau * (static_cast<double>(scores[i]) - scores[0]));
    sum += weights[i];
  }
  for (size_t i = 0; i < scores.size(); ++i) weights[i] /= sum;
}

}  // namespace

RankHistogram::RankHistogram(double prior_alpha, const MismatchShares& shares)
    : total_(kPriorRanks) {
  weights_[0] = kPriorRanks * prior_alpha;
  for (size_t i = 1; i < weights_.size(); ++i) {
    weights_[i] = kPriorRanks * (1 - prior_alpha) * shares[i - 1];
  }
}

void RankHistogram::Add(int rank) {
  const int kept = rank >= 1 && rank <= kRanks ? rank : kBeyond;
  if (total_ >= kRankMemory) {
    const double fade = 1 - 1 / (kRankMemory + 1);
    for (double& weight : weights_) weight *= fade;
    total_ *= fade;
  }
  weights_[static_cast<size_t>(kept - 1)] += 1;
  total_ += 1;
}

double RankHistogram::Within(int k) const {
  const auto end = weights_.begin() + std::clamp(k, 0, kRanks);
  return std::accumulate(weights_.begin(), end, 0.0) / total_;
}

double RankHistogram::CaughtBy(int branches) const {
  const double missed = 1 - alpha();
  return missed <= 0 ? 0
                     : (Within(1 + std::max(0, branches)) - alpha()) / missed;
}

MismatchShares RankHistogram::shares() const {
  const double missed =
      std::accumulate(weights_.begin() + 1, weights_.end(), 0.0);
  if (missed <= 0) return kMismatchShares;
  MismatchShares shares;
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = weights_[i + 1] / missed;
  }
  return shares;
}

ScoreCalibration::ScoreCalibration()
    : inverse_tau_(1 / kPriorTau),
      curvature_(kPriorCurvature),
      seen_(20),
      seen_within_(20 * kPriorWithin) {}

void ScoreCalibration::Apply(absl::Span<const float> scores,
                             absl::Span<float> log2_probabilities) const {
  NACRE_CHECK(
      scores.size() <= kRanks && scores.size() == log2_probabilities.size(),
      "as many probabilities as candidates");
  double weights[kRanks];
  FillRankWeights(scores, inverse_tau_, weights);
  for (size_t i = 0; i < scores.size(); ++i) {
    log2_probabilities[i] =
        std::min(0.0f, static_cast<float>(std::log2(weights[i] * within())));
  }
}

void ScoreCalibration::Add(absl::Span<const float> scores, int rank) {
  NACRE_CHECK(scores.size() <= kRanks, "more candidates than ranks");
  const int count = static_cast<int>(scores.size());
  const bool is_within = rank >= 1 && rank <= count;
  constexpr double kFade = 1 - 1 / kCalibrationMemory;
  seen_ = seen_ * kFade + 1;
  seen_within_ = seen_within_ * kFade + (is_within ? 1 : 0);
  if (!is_within || count < 2) return;
  // A temperature near 0 takes scores out of a float's range. Such distances
  // say nothing of tau, and one NaN would stay.
  if (!std::isfinite(scores[0] - scores[count - 1])) return;
  // d/db and -d2/db2 of b * score - log(sum of e^(b * score)), b = 1 / tau:
  // the score above its mean, and the variance.
  double weights[kRanks];
  FillRankWeights(scores, inverse_tau_, weights);
  double mean = 0;
  double variance = 0;
  for (int i = 0; i < count; ++i) mean += weights[i] * scores[i];
  for (int i = 0; i < count; ++i) {
    variance += weights[i] * (scores[i] - mean) * (scores[i] - mean);
  }
  curvature_ = curvature_ * kFade + variance;
  const double step = (scores[rank - 1] - mean) / curvature_;
  // One position never moves it by more than half.
  const double moved =
      std::clamp(inverse_tau_ + step, inverse_tau_ / 1.5, inverse_tau_ * 1.5);
  inverse_tau_ = std::clamp(moved, 1 / kMaxTau, 1 / kMinTau);
}

}  // namespace nacre::speculation
