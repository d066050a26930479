#include "tools/bench/bench_html.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/names.h"
#include "tools/bench/svg_chart.h"

namespace nacre::tools {
namespace {

using Lanes = google::protobuf::RepeatedPtrField<v1::TraceLane>;

constexpr absl::string_view kStyle = R"(
:root { --ink: #1a1a1a; --paper: #fff; --faint: #ddd; --grey: #8a8a8a;
  --ar: #767676; --sd: #0072b2; --pearl: #c77c00; --async: #008f66;
  --busy: #008f66; --wait: #e3c7b5; --miss: #cc8963; --prefill: #9aa7b0; --draft: #4fa3d8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181a;
  --faint: #34383c; --grey: #9a9a9a; --wait: #5a463a; --miss: #a0663f; } }
@media print { :root { --ink: #000; --paper: #fff; --faint: #ccc; }
  figure, table { break-inside: avoid; } }
body { color: var(--ink); background: var(--paper); margin: 2em auto;
  max-width: 64em; padding: 0 1em;
  font: 15px/1.5 system-ui, "Liberation Sans", Arial, sans-serif; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: 13px; }
th, td { text-align: right; padding: .15em .45em; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid var(--ink); vertical-align: bottom; }
tbody tr:nth-child(even) { background: color-mix(in srgb, var(--faint) 35%,
  transparent); }
figure { margin: 1.5em 0; } figcaption { font-size: 13px; }
svg { width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--ink); }
.key { display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em;
  vertical-align: -.1em; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px;
  border-left: 3px solid var(--faint); padding-left: .8em; }
rect { stroke: var(--paper); stroke-width: .5; }
.grid { stroke: var(--faint); } .axis { stroke: var(--grey); }
.base { stroke: var(--grey); stroke-dasharray: 3 3; }
.mark { stroke: var(--ink); stroke-width: 2; }
.bound { stroke: #cc3311; stroke-width: 2; stroke-dasharray: 3 2; }
.ar { fill: var(--ar); background: var(--ar); }
.sd { fill: var(--sd); background: var(--sd); }
.pearl { fill: var(--pearl); background: var(--pearl); }
.async { fill: var(--async); background: var(--async); }
.busy { fill: var(--busy); background: var(--busy); }
.wait { fill: var(--wait); background: var(--wait); }
.miss { fill: var(--miss); background: var(--miss); }
.prefill { fill: var(--prefill); background: var(--prefill); }
.draft { fill: var(--draft); background: var(--draft); }
)";

// The style sheet has a class for each method's name.
std::string CssClass(v1::Method method) {
  return std::string(MethodName(method));
}

std::string Key(absl::string_view css_class, absl::string_view text) {
  return absl::StrFormat("<span class=\"key %s\"></span>%s", css_class, text);
}

std::string Figure(absl::string_view svg, absl::string_view caption) {
  return absl::StrCat("<figure>\n", svg, "<figcaption>", caption,
                      "</figcaption>\n</figure>\n");
}

std::string Row(absl::string_view tag, const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, "<", tag, ">", EscapeHtml(cell), "</", tag, ">");
  }
  return absl::StrCat(row, "</tr>\n");
}

std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", 100.0 * share);
}

std::string MainTable(const HtmlLoad& load) {
  const bool predicted = AnyPrediction(load.summaries);
  std::vector<std::string> head = {
      "method",   "window",          "tokens/s",
      "over ar",  "acceptance rate", "accepted length",
      "hit rate", "target waits",    "draft waits"};
  if (predicted) {
    head.insert(head.end(), {"predicted tokens/s", "of predicted"});
  }
  head.push_back("closed law, over ar");
  std::string table =
      absl::StrCat("<table>\n<thead>", Row("th", head), "</thead>\n<tbody>\n");
  for (const MethodSummary& summary : load.summaries) {
    const bool ar = summary.method.method == v1::METHOD_AR;
    const auto number = [](std::optional<double> value, int digits) {
      return value.has_value() ? absl::StrFormat("%.*f", digits, *value) : "–";
    };
    std::vector<std::string> cells = {
        summary.method.name,
        ar ? "–" : absl::StrFormat("%.0f", summary.window),
        number(summary.tokens_per_second, 1),
        number(summary.speedup, 2),
        summary.has_draft() ? Percent(summary.acceptance_rate) : "–",
        number(summary.mean_accepted_length, 2),
        summary.hit_rate.has_value() ? Percent(*summary.hit_rate) : "–",
        Percent(summary.target_wait_share),
        ar ? "–" : Percent(summary.draft_wait_share)};
    if (predicted) {
      cells.push_back(summary.prediction.has_value()
                          ? number(summary.prediction->tokens_per_second, 1)
                          : "–");
      cells.push_back(summary.of_predicted.has_value()
                          ? Percent(*summary.of_predicted)
                          : "–");
    }
    cells.push_back(number(summary.law_speedup, 2));
    absl::StrAppend(&table, Row("td", cells));
  }
  return absl::StrCat(table, "</tbody>\n</table>\n");
}

// `part` of `whole`, in percent.
std::string ShareOf(std::optional<uint64_t> part,
                    std::optional<uint64_t> whole) {
  if (!part.has_value() || whole.value_or(0) == 0 || *part > *whole) {
    return "–";
  }
  return Percent(static_cast<double>(*part) / static_cast<double>(*whole));
}

// Of trees and chains: what steps paid for their tokens, and what was of use.
std::string PaidTable(const HtmlLoad& load) {
  std::string rows;
  for (const MethodSummary& summary : load.summaries) {
    if (summary.method.method == v1::METHOD_AR) continue;
    const auto a_step = [&summary](std::optional<uint64_t> count) {
      if (!count.has_value() || summary.paid.rounds == 0) {
        return std::string("–");
      }
      return absl::StrFormat("%.2f",
                             static_cast<double>(*count) /
                                 static_cast<double>(summary.paid.rounds));
    };
    absl::StrAppend(
        &rows,
        Row("td",
            {summary.method.name,
             absl::StrFormat("%.2f", summary.mean_accepted_length),
             a_step(summary.paid.rows_verified),
             ShareOf(summary.paid.rows_used, summary.paid.rows_verified),
             a_step(summary.suffix_proposed),
             ShareOf(summary.suffix_accepted, summary.suffix_proposed),
             a_step(summary.paid.drafted),
             ShareOf(summary.paid.accepted, summary.paid.drafted),
             summary.hit_rate.has_value() ? Percent(*summary.hit_rate) : "–"}));
  }
  if (rows.empty()) return "";
  return absl::StrCat(
      "<p>What a target step paid for, and what became text. Rows: draft "
      "tokens that it verified, and tokens that the target itself proposed. "
      "Sent: by the draft, branches included. Prepared: the mismatches after "
      "which a branch went on.</p>\n<table>\n<thead>",
      Row("th", {"a target step", "tokens", "rows of the draft", "used",
                 "rows of its own", "used", "sent", "used", "prepared"}),
      "</thead>\n<tbody>\n", rows, "</tbody>\n</table>\n");
}

std::string LatencyRows(const HtmlLoad& load) {
  std::string table =
      absl::StrCat("<table>\n<thead>",
                   Row("th", {"ms", "first token p50", "p95", "p99",
                              "between tokens p50", "p95", "p99"}),
                   "</thead>\n<tbody>\n");
  for (const MethodSummary& summary : load.summaries) {
    std::vector<std::string> cells = {summary.method.name};
    for (const Percentiles& each : {summary.ttft_s, summary.inter_token_s}) {
      for (const double seconds : {each.p50, each.p95, each.p99}) {
        cells.push_back(absl::StrFormat("%.1f", 1e3 * seconds));
      }
    }
    absl::StrAppend(&table, Row("td", cells));
  }
  return absl::StrCat(table, "</tbody>\n</table>\n");
}

bool IsOracle(const MethodSummary& summary) {
  return absl::StrContains(summary.method.name, "oracle");
}

// Speed-ups where the run has `ar`, else tokens a second.
std::string SpeedFigure(const HtmlLoad& load) {
  const bool relative = std::all_of(
      load.summaries.begin(), load.summaries.end(),
      [](const MethodSummary& each) { return each.speedup.has_value(); });
  const auto value = [relative](const MethodSummary& summary) {
    return relative ? *summary.speedup : summary.tokens_per_second;
  };
  bool bounded = false;
  std::vector<Bar> bars;
  for (const MethodSummary& summary : load.summaries) {
    Bar& bar = bars.emplace_back();
    bar.label = summary.method.name;
    bar.css_class = CssClass(summary.method.method);
    bar.value = value(summary);
    bar.text = absl::StrFormat("%.2f", bar.value);
    if (summary.of_predicted.value_or(0.0) > 0.0) {
      bar.mark = bar.value / *summary.of_predicted;
    }
    for (const MethodSummary& other : load.summaries) {
      if (IsOracle(other) && &other != &summary &&
          other.method.method == summary.method.method) {
        bar.bound = value(other);
        bounded = true;
      }
    }
  }
  std::string caption = absl::StrCat(
      relative ? "Speed-up over autoregressive decoding." : "Tokens a second.",
      Key("ar", "ar"), Key("sd", "sd"), Key("pearl", "pearl"),
      Key("async", "async"));
  if (AnyPrediction(load.summaries)) {
    caption += ". Black mark: what the simulator predicts without overhead";
  }
  if (bounded) {
    caption += ". Red mark: the oracle, which knows what the target will say";
  }
  return Figure(BarChart(bars, relative ? "speed-up" : "tokens/s",
                         relative ? std::optional<double>(1.0) : std::nullopt),
                caption);
}

std::string WaitingFigure(const HtmlLoad& load) {
  std::vector<ShareRow> rows;
  for (const MethodSummary& summary : load.summaries) {
    const auto add = [&](absl::string_view side, double wait, double miss) {
      rows.push_back(
          {absl::StrCat(summary.method.name, ", ", side),
           {{"busy", 1.0 - wait}, {"wait", wait - miss}, {"miss", miss}}});
    };
    add("target", summary.target_wait_share,
        summary.target_wait_after_miss_share);
    if (summary.method.method != v1::METHOD_AR) {
      add("draft", summary.draft_wait_share, 0.0);
    }
  }
  return Figure(
      ShareChart(rows),
      absl::StrCat("Which side waited for the other.", Key("busy", "busy"),
                   Key("wait", "waiting for the other side"),
                   Key("miss", "after a token that was not prepared")));
}

std::string HistogramFigure(const HtmlLoad& load) {
  std::vector<Histogram> histograms;
  for (size_t method = 0; method < load.summaries.size(); ++method) {
    const BenchMethod& entry = load.summaries[method].method;
    if (entry.method == v1::METHOD_AR) continue;
    Histogram histogram = {entry.name, CssClass(entry.method), {}};
    for (const BenchAnswer& answer : load.result.answers) {
      if (answer.method != static_cast<int>(method)) continue;
      const auto& counts = answer.complete.speculation().acceptance_histogram();
      if (histogram.counts.size() < static_cast<size_t>(counts.size())) {
        histogram.counts.resize(counts.size());
      }
      for (int i = 0; i < counts.size(); ++i) {
        histogram.counts[i] += static_cast<double>(counts[i]);
      }
    }
    histograms.push_back(std::move(histogram));
  }
  if (histograms.empty()) return "";
  return Figure(HistogramChart(histograms, "accepted in a step"),
                "How many draft tokens a target step accepted.");
}

// A request of the method that was traced; null without one.
const Lanes* FindTrace(const HtmlLoad& load, size_t method) {
  if (method < load.result.timelines.size() &&
      !load.result.timelines[method].empty()) {
    return &load.result.timelines[method];
  }
  for (const BenchAnswer& answer : load.result.traced) {
    if (answer.method == static_cast<int>(method) &&
        !answer.complete.trace().empty()) {
      return &answer.complete.trace();
    }
  }
  return nullptr;
}

TimelineSpan ToTimelineSpan(const v1::Span& span, int64_t offset_ns) {
  TimelineSpan shown;
  shown.start_ms =
      static_cast<double>(static_cast<int64_t>(span.start_ns()) - offset_ns) *
      1e-6;
  shown.end_ms =
      shown.start_ms + static_cast<double>(span.duration_ns()) * 1e-6;
  switch (span.kind()) {
    case v1::Span::KIND_DRAFT:
      shown.css_class = "draft";
      shown.text = span.abandoned() ? "abandoned" : "draft";
      break;
    case v1::Span::KIND_VERIFY:
      shown.css_class = "busy";
      shown.text =
          absl::StrFormat("verify %d: %d", span.rows(), span.accepted());
      break;
    case v1::Span::KIND_PREFILL:
      shown.css_class = "prefill";
      shown.text = "prefill";
      break;
    case v1::Span::KIND_WAIT_DRAFT_TOKENS:
    case v1::Span::KIND_WAIT_VERDICT:
      shown.css_class = span.after_miss() ? "miss" : "wait";
      shown.text = "waits";
      break;
    default:  // the client's acknowledgement; roll-backs have no length
      shown.css_class = "wait";
      shown.text = "held";
  }
  return shown;
}

// The middle of the request: some verifies and what lies beside them.
std::string Timeline(const std::string& name, const Lanes& trace) {
  std::vector<TimelineLane> lanes;
  std::vector<std::pair<double, double>> verifies;
  for (const v1::TraceLane& lane : trace) {
    const bool target = lane.role() == v1::WORKER_ROLE_TARGET;
    TimelineLane& shown = lanes.emplace_back();
    shown.label = absl::StrCat(name, target ? ", target" : ", draft");
    for (const v1::Span& span : lane.spans()) {
      // Comes while the draft does something else.
      if (span.kind() == v1::Span::KIND_HIDDEN) continue;
      shown.spans.push_back(ToTimelineSpan(span, lane.clock_offset_ns()));
      if (span.kind() == v1::Span::KIND_VERIFY) {
        verifies.emplace_back(shown.spans.back().start_ms,
                              shown.spans.back().end_ms);
      }
    }
  }
  if (verifies.empty()) return "";
  std::sort(verifies.begin(), verifies.end());
  const size_t rounds = std::min<size_t>(kTimelineRounds, verifies.size());
  const size_t first = (verifies.size() - rounds) / 2;
  return TimelineChart(lanes, verifies[first].first,
                       verifies[first + rounds - 1].second);
}

std::string TimelineFigure(const HtmlLoad& load) {
  std::string charts;
  for (size_t method = 0; method < load.summaries.size(); ++method) {
    const BenchMethod& entry = load.summaries[method].method;
    if (entry.method == v1::METHOD_AR) continue;
    if (const Lanes* trace = FindTrace(load, method)) {
      charts += Timeline(entry.name, *trace);
    }
  }
  if (charts.empty()) return "";
  return Figure(
      charts,
      absl::StrCat("Some rounds of one request. “verify 4: 2” is a target "
                   "step of 4 rows that accepted 2 draft tokens.",
                   Key("busy", "verify"), Key("draft", "draft"),
                   Key("wait", "waiting"), Key("miss", "waiting after a miss"),
                   Key("prefill", "prefill")));
}

std::string Section(const HtmlLoad& load, bool several) {
  std::string html = absl::StrFormat(
      "<h2>%d request%s at once</h2>\n<p>Prompts: %d; repetitions: %d "
      "(medians); identical tokens: <strong>%s</strong>.</p>\n",
      load.plan.streams, load.plan.streams == 1 ? "" : "s",
      load.plan.prompts.size(), load.plan.repeat, load.identical_tokens);
  absl::StrAppend(&html, MainTable(load), PaidTable(load), SpeedFigure(load));
  if (several || load.plan.streams > 1) html += LatencyRows(load);
  absl::StrAppend(&html, WaitingFigure(load), HistogramFigure(load),
                  TimelineFigure(load));
  return html;
}

}  // namespace

std::string BenchHtml(absl::string_view command, const v1::Model& model,
                      const std::vector<HtmlLoad>& loads) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>nacre "
      "bench: ",
      EscapeHtml(model.name()), "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n<h1>nacre bench: ", EscapeHtml(model.name()),
      "</h1>\n<p>Numerics: ", EscapeHtml(model.numerics_id()), "</p>\n<pre>",
      EscapeHtml(command), "</pre>\n");
  for (const HtmlLoad& load : loads) {
    html += Section(load, loads.size() > 1);
  }
  return absl::StrCat(html, "</body>\n</html>\n");
}

}  // namespace nacre::tools
