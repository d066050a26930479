#include "tools/bench/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nacre::tools {
namespace {

// Pixels of the SVG's own coordinates; the page scales it to its width.
constexpr double kWidth = 760.0;
constexpr double kLabelWidth = 215.0;
constexpr double kTextWidth = 130.0;  // past the longest bar
constexpr double kRow = 22.0;
constexpr double kBarHeight = 14.0;
constexpr double kAxisHeight = 34.0;
constexpr double kCharWidth = 6.2;  // of the page's 11 px

std::string Open(double height) {
  return absl::StrFormat(
      "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
      "xmlns=\"http://www.w3.org/2000/svg\">\n",
      kWidth, height);
}

std::string Line(double x1, double y1, double x2, double y2,
                 absl::string_view css_class) {
  return absl::StrFormat(
      "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
      css_class, x1, y1, x2, y2);
}

std::string Rect(double x, double y, double width, double height,
                 absl::string_view css_class, absl::string_view title = {}) {
  const std::string open = absl::StrFormat(
      "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" "
      "height=\"%.1f\"",
      css_class, x, y, std::max(0.0, width), std::max(0.0, height));
  if (title.empty()) return absl::StrCat(open, "/>\n");
  return absl::StrCat(open, "><title>", EscapeHtml(title), "</title></rect>\n");
}

// `anchor`: start, middle or end.
std::string Text(double x, double y, absl::string_view anchor,
                 absl::string_view text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
      anchor, EscapeHtml(text));
}

// 12.5 as "12.5", 12.0 as "12".
std::string TickText(double value) { return absl::StrFormat("%.4g", value); }

// Ticks and their numbers under `height` pixels of rows, from x0 on.
std::string Axis(double x0, double scale, double top, double height,
                 absl::string_view unit) {
  std::string svg;
  const double step = NiceStep(top, 8);
  for (double tick = 0.0; tick <= top * (1.0 + 1e-9); tick += step) {
    const double x = x0 + tick * scale;
    absl::StrAppend(&svg, Line(x, 0.0, x, height, "grid"),
                    Text(x, height + 14.0, "middle", TickText(tick)));
  }
  absl::StrAppend(&svg,
                  Text(x0 + top * scale / 2.0, height + 30.0, "middle", unit));
  return svg;
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

double NiceStep(double top, int max_ticks) {
  if (!(top > 0.0)) return 1.0;
  const double rough = top / std::max(1, max_ticks);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

std::string BarChart(const std::vector<Bar>& bars, absl::string_view unit,
                     std::optional<double> base) {
  double top = base.value_or(0.0);
  for (const Bar& bar : bars) {
    top = std::max(
        {top, bar.value, bar.mark.value_or(0.0), bar.bound.value_or(0.0)});
  }
  if (!(top > 0.0)) top = 1.0;
  const double scale = (kWidth - kLabelWidth - kTextWidth) / top;
  const double height = kRow * static_cast<double>(bars.size());
  std::string svg = absl::StrCat(Open(height + kAxisHeight),
                                 Axis(kLabelWidth, scale, top, height, unit));
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double y = kRow * static_cast<double>(i);
    const double middle = y + kRow / 2.0;
    const auto x = [scale](double value) {
      return kLabelWidth + value * scale;
    };
    absl::StrAppend(&svg,
                    Text(kLabelWidth - 8.0, middle + 4.0, "end", bar.label),
                    Rect(kLabelWidth, middle - kBarHeight / 2.0,
                         bar.value * scale, kBarHeight, bar.css_class));
    double end = x(bar.value);
    for (const auto& [value, css_class] :
         {std::pair(bar.mark, "mark"), std::pair(bar.bound, "bound")}) {
      if (!value.has_value()) continue;
      absl::StrAppend(
          &svg, Line(x(*value), y + 2.0, x(*value), y + kRow - 2.0, css_class));
      // The number stands past a mark that it would touch.
      if (x(*value) < end + 6.0 * kCharWidth) end = std::max(end, x(*value));
    }
    absl::StrAppend(&svg, Text(end + 6.0, middle + 4.0, "start", bar.text));
  }
  if (base.has_value()) {
    const double x = kLabelWidth + *base * scale;
    absl::StrAppend(&svg, Line(x, 0.0, x, height, "base"));
  }
  return absl::StrCat(svg, "</svg>\n");
}

std::string ShareChart(const std::vector<ShareRow>& rows) {
  const double scale = kWidth - kLabelWidth - 20.0;
  const double height = kRow * static_cast<double>(rows.size());
  std::string svg =
      absl::StrCat(Open(height + kAxisHeight),
                   Axis(kLabelWidth, scale, 1.0, height, "share of the time"));
  for (size_t i = 0; i < rows.size(); ++i) {
    const double middle = kRow * (static_cast<double>(i) + 0.5);
    absl::StrAppend(
        &svg, Text(kLabelWidth - 8.0, middle + 4.0, "end", rows[i].label));
    double at = 0.0;
    for (const Share& share : rows[i].shares) {
      absl::StrAppend(&svg,
                      Rect(kLabelWidth + at * scale, middle - kBarHeight / 2.0,
                           share.value * scale, kBarHeight, share.css_class,
                           absl::StrFormat("%.1f %%", 100.0 * share.value)));
      at += share.value;
    }
  }
  return absl::StrCat(svg, "</svg>\n");
}

std::string HistogramChart(const std::vector<Histogram>& histograms,
                           absl::string_view axis) {
  constexpr int kColumns = 4;
  constexpr double kCell = kWidth / kColumns;
  constexpr double kPlot = 70.0;  // height of the bars
  constexpr double kCellHeight = kPlot + 56.0;
  double top = 0.0;
  for (const Histogram& histogram : histograms) {
    double sum = 0.0, most = 0.0;
    for (const double count : histogram.counts) {
      sum += count;
      most = std::max(most, count);
    }
    if (sum > 0.0) top = std::max(top, most / sum);
  }
  if (!(top > 0.0)) top = 1.0;
  const size_t num_rows = (histograms.size() + kColumns - 1) / kColumns;
  std::string svg = Open(kCellHeight * static_cast<double>(num_rows));
  for (size_t i = 0; i < histograms.size(); ++i) {
    const Histogram& histogram = histograms[i];
    const double x0 = kCell * static_cast<double>(i % kColumns) + 10.0;
    const size_t row = i / kColumns;
    const double y0 = kCellHeight * static_cast<double>(row);
    const double bottom = y0 + 20.0 + kPlot;
    double sum = 0.0;
    for (const double count : histogram.counts) sum += count;
    absl::StrAppend(&svg, Text(x0, y0 + 12.0, "start", histogram.label),
                    Line(x0, bottom, x0 + kCell - 20.0, bottom, "axis"));
    const size_t size = std::max<size_t>(1, histogram.counts.size());
    const double width = (kCell - 20.0) / static_cast<double>(size);
    // Numbers under every column, or under some where they would touch.
    const size_t every =
        static_cast<size_t>(std::max(1.0, std::ceil(2.5 * kCharWidth / width)));
    for (size_t j = 0; j < histogram.counts.size(); ++j) {
      const double share = sum > 0.0 ? histogram.counts[j] / sum : 0.0;
      const double x = x0 + width * static_cast<double>(j);
      absl::StrAppend(&svg,
                      Rect(x + 1.0, bottom - kPlot * share / top, width - 2.0,
                           kPlot * share / top, histogram.css_class,
                           absl::StrFormat("%d: %.1f %%", static_cast<int>(j),
                                           100.0 * share)));
      if (j % every == 0) {
        absl::StrAppend(&svg, Text(x + width / 2.0, bottom + 13.0, "middle",
                                   absl::StrCat(j)));
      }
    }
    absl::StrAppend(
        &svg, Text(x0 + (kCell - 20.0) / 2.0, bottom + 27.0, "middle", axis));
  }
  return absl::StrCat(svg, "</svg>\n");
}

std::string TimelineChart(const std::vector<TimelineLane>& lanes,
                          double begin_ms, double end_ms) {
  constexpr double kLane = 34.0;
  const double span_ms = std::max(1e-6, end_ms - begin_ms);
  const double scale = (kWidth - kLabelWidth - 20.0) / span_ms;
  const double height = kLane * static_cast<double>(lanes.size());
  std::string svg =
      absl::StrCat(Open(height + kAxisHeight),
                   Axis(kLabelWidth, scale, span_ms, height, "milliseconds"));
  for (size_t i = 0; i < lanes.size(); ++i) {
    const double y = kLane * static_cast<double>(i);
    absl::StrAppend(&svg, Text(kLabelWidth - 8.0, y + kLane / 2.0 + 4.0, "end",
                               lanes[i].label));
    for (const TimelineSpan& span : lanes[i].spans) {
      const double from = std::max(span.start_ms, begin_ms);
      const double to = std::min(span.end_ms, end_ms);
      if (!(to > from)) continue;
      const double x = kLabelWidth + (from - begin_ms) * scale;
      const double width = (to - from) * scale;
      absl::StrAppend(&svg, Rect(x, y + 4.0, width, kLane - 8.0, span.css_class,
                                 absl::StrFormat("%s, %.2f ms", span.text,
                                                 span.end_ms - span.start_ms)));
      if (static_cast<double>(span.text.size()) * kCharWidth < width) {
        absl::StrAppend(&svg, Text(x + width / 2.0, y + kLane / 2.0 + 4.0,
                                   "middle", span.text));
      }
    }
  }
  return absl::StrCat(svg, "</svg>\n");
}

}  // namespace nacre::tools
