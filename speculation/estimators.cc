#include "speculation/estimators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace nacre::speculation {
namespace {

// Of averages, which are positive or unknown: 0.
constexpr int kSpan = 8;
bool AllUnknown(const double* averages) {
  uint64_t bits[kSpan];
  std::memcpy(bits, averages, sizeof(bits));
  uint64_t any = 0;
  for (const uint64_t each : bits) any |= each;
  return any == 0;
}

// The next rows from `rows` on, downward or upward, whose average is known.
// Most curves have few, and a plan asks for the times of many.
int KnownBelow(const double* averages, int rows) {  // 0: none
  while (rows >= kSpan && AllUnknown(averages + rows - kSpan + 1)) {
    rows -= kSpan;
  }
  while (rows >= 1 && averages[rows] == 0.0) --rows;
  return rows;
}
int KnownAbove(const double* averages, int rows, int most) {  // `most` is known
  while (rows + kSpan <= most && AllUnknown(averages + rows)) rows += kSpan;
  while (averages[rows] == 0.0) ++rows;
  return rows;
}

constexpr double kPriorWeight = 4.0;
constexpr double kMemory = 64.0;  // comparisons
constexpr double kStepWeight = 0.1;
// How much of a relative change the rows that were not measured follow. A power
// of the change, so that noise, which leaves an average where it is, leaves the
// others there too.
constexpr double kShared = 0.8;
// Of a first sample, as later ones: an outlier counts as twice what is likely.
constexpr double kMostOverExpected = 2.0;
constexpr double kDoubtful = 1.5;

}  // namespace

AcceptanceEstimator::AcceptanceEstimator(double prior_alpha)
    : verified_(kPriorWeight), accepted_(kPriorWeight * prior_alpha) {}

void AcceptanceEstimator::Add(int verified, int accepted) {
  verified_ += verified;
  accepted_ += accepted;
  if (verified_ > kMemory) {
    accepted_ *= kMemory / verified_;
    verified_ = kMemory;
  }
}

void StepTimeCurve::Add(int rows, int64_t duration_ns) {
  if (rows < 1 || rows > kMaxRows || duration_ns <= 0) return;
  double& average = average_ns_[rows];
  const double sample = static_cast<double>(duration_ns);
  if (average == 0.0) {
    AddFirst(rows, sample);
    return;
  }
  // A preempted step says nothing about the curve: outliers count as twice.
  const double change =
      1.0 + kStepWeight * (std::min(sample / average, 2.0) - 1.0);
  is_doubtful_[rows] = is_doubtful_[rows] && sample < average;
  const double shared = is_doubtful_[rows] ? 1.0 : std::pow(change, kShared);
  for (double& other : average_ns_) other *= shared;
  average *= change / shared;
}

void StepTimeCurve::AddFirst(int rows, double sample_ns) {
  double& average = average_ns_[rows];
  if (count_ == 0) {
    average = sample_ns;
  } else {
    const double expected = At(rows);
    // No row of a larger step costs more than one of the largest so far.
    const double most = std::max(expected, average_ns_[most_] / most_ * rows);
    average = std::min(sample_ns, kMostOverExpected * most);
    is_doubtful_[rows] = sample_ns > kDoubtful * expected;
  }
  ++count_;
  most_ = std::max(most_, rows);
}

double StepTimeCurve::LastSlope() const {
  // Down to half the rows: the difference of neighbours is mostly noise, and it
  // would be multiplied.
  int below = most_ / 2;
  while (below >= 1 && average_ns_[below] == 0.0) --below;
  if (below < 1) {
    below = most_ / 2 + 1;
    while (average_ns_[below] == 0.0) ++below;
  }
  if (below == most_) return 0.0;  // one point
  const double rise = average_ns_[most_] - average_ns_[below];
  return std::max(0.0, rise / (most_ - below));
}

double StepTimeCurve::At(int rows) const {
  rows = std::max(rows, 1);
  if (count_ == 0) return 1.0;
  if (rows >= most_) {
    return average_ns_[most_] +
           LastSlope() * (static_cast<double>(rows) - most_);
  }
  const int below = KnownBelow(average_ns_.data(), rows);
  const int above = KnownAbove(average_ns_.data(), rows, most_);
  if (below < 1) return average_ns_[above];
  if (above == below) return average_ns_[below];
  const double t = static_cast<double>(rows - below) / (above - below);
  return average_ns_[below] + t * (average_ns_[above] - average_ns_[below]);
}

}  // namespace nacre::speculation
