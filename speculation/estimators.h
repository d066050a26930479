// What the schedule measures while it runs: acceptance per session, step times
// per worker. Pure; one owner each, no threads.

#ifndef SPECULATION_ESTIMATORS_H_
#define SPECULATION_ESTIMATORS_H_

#include <array>
#include <cstdint>

#include "speculation/pipeline.h"

namespace nacre::speculation {

// The probability that a compared draft token matches: a Beta posterior mean
// whose memory is the last ~64 comparisons.
class AcceptanceEstimator {
 public:
  // The prior counts as 4 comparisons, `prior_alpha` of them accepted.
  explicit AcceptanceEstimator(double prior_alpha = 0.7);

  void Add(int verified, int accepted);
  double alpha() const { return accepted_ / verified_; }  // in (0, 1)

 private:
  double verified_;
  double accepted_;
};

// Step time as a function of the rows of the step, from measurements: per-row
// exponential averages, straight lines between them, flat before the first.
// After the last the line goes on as it ends, but never down: were it flat
// there, rows that were never tried would look free. What changes all steps
// alike (a busy memory, a slower clock) shows first in the
// rows that are being measured: the others move with them. Not while a first
// sample that was far above what the others told comes down: that says nothing
// of them. Feeding a constant curve keeps it constant.
class StepTimeCurve {
 public:
  static constexpr int kMaxRows = 512;

  // `duration_ns` of a step with `rows` rows; others are ignored.
  void Add(int rows, int64_t duration_ns);
  bool empty() const { return count_ == 0; }
  // Of the largest step measured; 0: none was.
  int most_rows() const { return most_; }
  // Nanoseconds, > 0; 1 when nothing has been measured. Any rows.
  double At(int rows) const;

 private:
  // `sample_ns` as the first average of `rows`, or as much of it as the other
  // rows make believe.
  void AddFirst(int rows, double sample_ns);
  // Nanoseconds a row beyond the largest step measured, >= 0.
  double LastSlope() const;

  std::array<double, kMaxRows + 1> average_ns_{};  // 0 where not measured
  // Where the first sample was far above what the others told, and all since
  // then below the average.
  std::array<bool, kMaxRows + 1> is_doubtful_{};
  int count_ = 0;
  int most_ = 0;  // rows measured
};

}  // namespace nacre::speculation

#endif  // SPECULATION_ESTIMATORS_H_
