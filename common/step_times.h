// How long a step takes for its number of rows. Plain values, no threads.

#ifndef COMMON_STEP_TIMES_H_
#define COMMON_STEP_TIMES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre {

class StepTimes {
 public:
  struct Point {
    int rows = 1;
    double ns = 0.0;
  };

  // The same for any number of rows.
  static StepTimes Flat(double ns) { return StepTimes({{1, ns}}); }

  // Straight lines between the points; flat before the first; beyond the last
  // the last line goes on, but never down. `points`: at least one, rows rising
  // from >= 1, times > 0.
  explicit StepTimes(std::vector<Point> points);

  // rows >= 1; >= 1 ns.
  int64_t At(int rows) const;
  bool flat() const;
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
};

// "1:10,8:12.5": rows and milliseconds. INVALID_ARGUMENT: rows that do not rise
// or are not in 1..100000, times not in 0.001..100000.
absl::StatusOr<StepTimes> ParseStepTimes(absl::string_view text);

}  // namespace nacre

#endif  // COMMON_STEP_TIMES_H_
