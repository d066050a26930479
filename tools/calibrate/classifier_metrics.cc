#include "tools/calibrate/classifier_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tools/generate/generation_json.h"

namespace nacre::tools {
namespace {

// A certain probability that is wrong would cost infinitely much.
constexpr double kSmallest = 1e-12;

struct Bin {
  double said = 0.0;
  double happened = 0.0;
};

}  // namespace

ClassifierMetrics MeasureClassifier(absl::Span<const Prediction> predictions) {
  ClassifierMetrics metrics;
  metrics.count = predictions.size();
  if (predictions.empty()) return metrics;
  const double count = static_cast<double>(metrics.count);
  double accepted = 0.0;
  double predicted = 0.0;
  double hits = 0.0;
  std::array<Bin, kCalibrationBins> bins;
  for (const Prediction& prediction : predictions) {
    const double p = prediction.probability;
    const double label = prediction.accepted ? 1.0 : 0.0;
    accepted += label;
    if (p >= 0.5) {
      predicted += 1.0;
      hits += label;
    }
    Bin& bin = bins[std::min<size_t>(
        kCalibrationBins - 1, static_cast<size_t>(p * kCalibrationBins))];
    bin.said += p;
    bin.happened += label;
    metrics.loss -=
        std::log(std::max(prediction.accepted ? p : 1.0 - p, kSmallest));
  }
  metrics.loss /= count;
  metrics.accepted_share = accepted / count;
  metrics.precision = Ratio(hits, predicted);
  metrics.recall = Ratio(hits, accepted);
  metrics.f1 = Ratio(2.0 * hits, predicted + accepted);
  metrics.f1_of_all = Ratio(2.0 * accepted, count + accepted);
  for (const Bin& bin : bins) {
    metrics.calibration_error += std::abs(bin.said - bin.happened) / count;
  }
  return metrics;
}

ClassifierMetrics MeasureNetwork(const speculation::DiscoWeights& weights,
                                 absl::Span<const Example> examples) {
  std::vector<Prediction> predictions;
  predictions.reserve(examples.size());
  for (const Example& example : examples) {
    predictions.push_back(
        {speculation::DiscoProbability(weights, example.inputs),
         example.accepted});
  }
  return MeasureClassifier(predictions);
}

ClassifierMetrics MeasureNetwork(const speculation::AcceptanceHead& head,
                                 double odds_factor,
                                 absl::Span<const StateExample> examples) {
  std::vector<Prediction> predictions;
  predictions.reserve(examples.size());
  for (const StateExample& example : examples) {
    const double said = head.Accepted(example.state);
    const double accepted = odds_factor * said;
    predictions.push_back(
        {accepted / (accepted + 1.0 - said), example.accepted > 0.5});
  }
  return MeasureClassifier(predictions);
}

ClassifierMetrics MeasureNetwork(const speculation::CaliTsModel& model,
                                 absl::Span<const CaliTsExample> examples) {
  const speculation::CaliTsScorer scorer(model);
  std::vector<Prediction> predictions;
  predictions.reserve(examples.size());
  for (const CaliTsExample& example : examples) {
    predictions.push_back(
        {scorer.Score(scorer.TargetPart(example.step, example.target_state),
                      example.draft_state),
         example.accepted});
  }
  return MeasureClassifier(predictions);
}

}  // namespace nacre::tools
