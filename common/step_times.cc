#include "common/step_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"

namespace nacre {
namespace {

constexpr int kMaxRows = 100'000;
constexpr double kMinMs = 0.001;
constexpr double kMaxMs = 100'000.0;

}  // namespace

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

absl::StatusOr<StepTimes> ParseStepTimes(absl::string_view text) {
  std::vector<StepTimes::Point> points;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    StepTimes::Point point;
    double ms = 0.0;
    if (!absl::SimpleAtoi(pair.first, &point.rows) || point.rows < 1 ||
        point.rows > kMaxRows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", part, "\": the rows before \":\" are not in 1..", kMaxRows));
    }
    if (!absl::SimpleAtod(pair.second, &ms) || !(ms >= kMinMs) || ms > kMaxMs) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", part, "\": the milliseconds after \":\" are not in ", kMinMs,
          "..", kMaxMs));
    }
    if (!points.empty() && point.rows <= points.back().rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part, "\": the rows do not rise"));
    }
    point.ns = ms * 1e6;
    points.push_back(point);
  }
  return StepTimes(std::move(points));
}

}  // namespace nacre
