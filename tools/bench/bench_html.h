// nacre bench --html: what was measured as one page that needs nothing else,
// for a browser and for paper. Pure.

#ifndef TOOLS_BENCH_BENCH_HTML_H_
#define TOOLS_BENCH_BENCH_HTML_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_run.h"

namespace nacre::tools {

// The measurements of one number of streams.
struct HtmlLoad {
  const BenchPlan& plan;
  const BenchResult& result;
  const std::vector<MethodSummary>& summaries;
  std::string identical_tokens;  // IdentityText
};

// `command`: what was typed. For each load: tables, waiting, histograms of
// accepted tokens, and some rounds on a time axis. Also the speed-up with what
// was predicted. Where one of the entries is the policy `oracle`, with its
// bound for the others of its method.
std::string BenchHtml(absl::string_view command, const v1::Model& model,
                      const std::vector<HtmlLoad>& loads);

// Rounds that the time axis shows.
inline constexpr int kTimelineRounds = 8;

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_BENCH_HTML_H_
