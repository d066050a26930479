#include "simulation/step_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace nacre::simulation {

StepTimes::StepTimes(std::vector<Point> points) : points_(std::move(points)) {
  NACRE_CHECK(!points_.empty() && points_.front().rows >= 1,
              "a step-time curve starts at one row or more");
  for (size_t i = 0; i < points_.size(); ++i) {
    NACRE_CHECK(points_[i].ns > 0.0, "a step takes time");
    NACRE_CHECK(i == 0 || points_[i].rows > points_[i - 1].rows,
                "the rows of a step-time curve rise");
  }
}

int64_t StepTimes::At(int rows) const {
  double ns = points_.front().ns;
  for (size_t i = 1; i < points_.size(); ++i) {
    const Point& below = points_[i - 1];
    const Point& above = points_[i];
    const bool last = i + 1 == points_.size();
    if (rows <= below.rows || (rows > above.rows && !last)) continue;
    const double slope = (above.ns - below.ns) / (above.rows - below.rows);
    ns = rows <= above.rows
             ? below.ns + slope * (rows - below.rows)
             : above.ns + std::max(slope, 0.0) * (rows - above.rows);
  }
  return std::max<int64_t>(1, std::llround(ns));
}

bool StepTimes::flat() const {
  return std::all_of(points_.begin(), points_.end(), [this](const Point& p) {
    return p.ns == points_.front().ns;
  });
}

}  // namespace nacre::simulation
