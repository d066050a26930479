// Charts as SVG text for a page that needs nothing else: no script, no font, no
// file. Colours are classes of the page's style sheet (bench_html.cc), so that
// one chart serves screen, dark screen and paper.
//
// Pure. Labels are escaped; values must be finite.

#ifndef TOOLS_BENCH_SVG_CHART_H_
#define TOOLS_BENCH_SVG_CHART_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace nacre::tools {

// & < > " and ' as HTML and SVG want them.
std::string EscapeHtml(absl::string_view text);

// A tick distance of 1, 2 or 5 times a power of ten that gives at most
// `max_ticks` ticks up to `top`. 1 where top is not > 0.
double NiceStep(double top, int max_ticks);

struct Bar {
  std::string label;
  std::string css_class;  // of its colour
  double value = 0.0;     // >= 0
  std::string text;       // after the bar
  // A mark across the bar, such as what was predicted; and one in its row that
  // is a bound.
  std::optional<double> mark;
  std::optional<double> bound;
};
// One horizontal bar a row, from 0. `unit` names the axis; `base`, where set,
// is a line through all rows (1.0 of a speed-up).
std::string BarChart(const std::vector<Bar>& bars, absl::string_view unit,
                     std::optional<double> base);

struct Share {
  std::string css_class;
  double value = 0.0;  // >= 0; the row is as long as their sum is of 1
};
struct ShareRow {
  std::string label;
  std::vector<Share> shares;
};
// Rows of shares of 1, one after the other.
std::string ShareChart(const std::vector<ShareRow>& rows);

struct Histogram {
  std::string label;
  std::string css_class;
  std::vector<double> counts;  // [j]: how often j
};
// Small histograms side by side with one scale: shares of each one's sum.
std::string HistogramChart(const std::vector<Histogram>& histograms,
                           absl::string_view axis);

struct TimelineSpan {
  double start_ms = 0.0;
  double end_ms = 0.0;
  std::string css_class;
  std::string text;  // inside, where it fits; and what pointing at it shows
};
struct TimelineLane {
  std::string label;
  std::vector<TimelineSpan> spans;
};
// From begin_ms to end_ms (> begin_ms); what lies outside is cut.
std::string TimelineChart(const std::vector<TimelineLane>& lanes,
                          double begin_ms, double end_ms);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_SVG_CHART_H_
