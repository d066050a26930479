// How good probabilities of acceptance are.
//
// Pure functions.

#ifndef TOOLS_CALIBRATE_CLASSIFIER_METRICS_H_
#define TOOLS_CALIBRATE_CLASSIFIER_METRICS_H_

#include <cstddef>

#include "absl/types/span.h"
#include "speculation/policies/disco.h"
#include "speculation/policies/specdec_plus_plus.h"
#include "tools/calibrate/dataset.h"

namespace nacre::tools {

struct Prediction {
  double probability = 0.0;  // that the token is accepted
  bool accepted = false;
};

struct ClassifierMetrics {
  size_t count = 0;
  double accepted_share = 0.0;
  // "Accepted" at a threshold of 1/2; 0 where nothing is predicted or there.
  double precision = 0.0;
  double recall = 0.0;
  double f1 = 0.0;
  // What F1 would be if "accepted" were said of all: it is high where most are.
  double f1_of_all = 0.0;
  // Expected calibration error over kCalibrationBins bins of equal width: the
  // mean distance of what is said from what happens (Guo et al.,
  // arXiv:1706.04599, eq. 3).
  double calibration_error = 0.0;
  double loss = 0.0;  // mean cross-entropy, nats
};

inline constexpr int kCalibrationBins = 10;

// Of none: all 0.
ClassifierMetrics MeasureClassifier(absl::Span<const Prediction> predictions);

// What the network says of the examples. Of a head, the odds that it gives
// acceptance are taken times `odds_factor`. With the weight of a rejected token
// in its training as the factor, that weight is undone.
ClassifierMetrics MeasureNetwork(const speculation::DiscoWeights& weights,
                                 absl::Span<const Example> examples);
ClassifierMetrics MeasureNetwork(const speculation::AcceptanceHead& head,
                                 double odds_factor,
                                 absl::Span<const StateExample> examples);
ClassifierMetrics MeasureNetwork(const speculation::CaliTsModel& model,
                                 absl::Span<const CaliTsExample> examples);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_CLASSIFIER_METRICS_H_
