// How long a step takes for its number of rows. Plain values, no threads.

#ifndef SIMULATION_STEP_TIMES_H_
#define SIMULATION_STEP_TIMES_H_

#include <cstdint>
#include <vector>

namespace nacre::simulation {

class StepTimes {
 public:
  struct Point {
    int rows = 1;
    double ns = 0.0;
  };

  // The same for any number of rows.
  static StepTimes Flat(double ns) { return StepTimes({{1, ns}}); }

  // Straight lines between the points; flat before the first; behind the last
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

}  // namespace nacre::simulation

#endif  // SIMULATION_STEP_TIMES_H_
