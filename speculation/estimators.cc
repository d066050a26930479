#include "speculation/estimators.h"

#include <algorithm>
#include <cmath>

namespace nacre::speculation {
namespace {

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
  int below = rows;
  while (below >= 1 && average_ns_[below] == 0.0) --below;
  int above = rows;
  while (average_ns_[above] == 0.0) ++above;
  if (below < 1) return average_ns_[above];
  if (above == below) return average_ns_[below];
  const double t = static_cast<double>(rows - below) / (above - below);
  return average_ns_[below] + t * (average_ns_[above] - average_ns_[below]);
}

}  // namespace nacre::speculation
