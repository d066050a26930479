#include "tools/bench/bench_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/names.h"
#include "speculation/law.h"
#include "tools/generate/generation_json.h"
#include "tools/step_times_json.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxGate = 64;

// Sums over the requests of one method.
struct Totals {
  v1::SpeculationReport report;  // counts only
  double draft_busy_s = 0.0;
  double draft_wait_s = 0.0;
  double target_busy_s = 0.0;
  double target_wait_s = 0.0;
  double target_wait_after_miss_s = 0.0;
  std::vector<double> tokens;  // [repeat]
  std::vector<double> windows;
  std::vector<double> alphas;
  std::vector<double> cost_ratios;
  std::vector<double> ttft_s;
  std::vector<double> inter_token_s;
  PaidWork paid;

  // Steps that a stop string cut off are among the rounds; their tokens are not
  // committed.
  void AddPaid(const v1::SpeculationReport& one) {
    paid.rounds += one.rounds();
    paid.drafted += one.drafted();
    paid.accepted += one.accepted();
    if (one.per_round_drafted_size() == 0) return;
    uint64_t rows = 0;
    for (const uint32_t each : one.per_round_drafted()) rows += each;
    const uint64_t others = one.rounds() + one.suffix_accepted();
    const uint64_t used =
        one.committed() > others ? one.committed() - others : 0;
    paid.rows_verified = paid.rows_verified.value_or(0) + rows;
    paid.rows_used = paid.rows_used.value_or(0) + used;
  }

  void Add(const BenchAnswer& answer) {
    const v1::SpeculationReport& one = answer.complete.speculation();
    report.set_rounds(report.rounds() + one.rounds());
    report.set_verified(report.verified() + one.verified());
    report.set_accepted(report.accepted() + one.accepted());
    report.set_committed(report.committed() + one.committed());
    report.set_degraded_rounds(report.degraded_rounds() +
                               one.degraded_rounds());
    report.set_suffix_proposed(report.suffix_proposed() +
                               one.suffix_proposed());
    report.set_suffix_accepted(report.suffix_accepted() +
                               one.suffix_accepted());
    for (int i = 0; i < one.ranks_size(); ++i) {
      if (i == report.ranks_size()) report.add_ranks(0);
      report.set_ranks(i, report.ranks(i) + one.ranks(i));
    }
    report.set_prepared(report.prepared() + one.prepared());
    AddPaid(one);
    const v1::Timing& timing = answer.complete.timing();
    draft_busy_s += Seconds(timing.draft_busy());
    draft_wait_s += Seconds(timing.draft_wait());
    target_busy_s += Seconds(timing.target_busy());
    target_wait_s += Seconds(timing.target_wait());
    target_wait_after_miss_s += Seconds(timing.target_wait_after_miss());
    tokens[answer.repeat] += answer.complete.token_ids_size();
    ttft_s.push_back(answer.ttft_s);
    inter_token_s.insert(inter_token_s.end(), answer.inter_token_s.begin(),
                         answer.inter_token_s.end());
    windows.push_back(one.window());
    if (one.alpha() > 0.0) alphas.push_back(one.alpha());
    if (one.cost_ratio() > 0.0) cost_ratios.push_back(one.cost_ratio());
  }
};

std::optional<double> LawSpeedup(const MethodSummary& summary) {
  if (summary.method.method == v1::METHOD_AR) return 1.0;
  if (summary.method.has_policy_rule() || summary.method.is_ratio() ||
      !summary.method.ablation.empty() ||
      (summary.method.method != v1::METHOD_ASYNC &&
       summary.method.has_tree())) {
    return std::nullopt;
  }
  const double alpha = summary.acceptance_rate;
  const double cost_ratio = summary.cost_ratio;
  if (!(cost_ratio > 0.0) || !(alpha > 0.0)) return std::nullopt;
  const int window = std::max(1, static_cast<int>(std::lround(summary.window)));
  switch (summary.method.method) {
    case v1::METHOD_SD:
      return speculation::SdSpeedup(alpha, cost_ratio, window);
    case v1::METHOD_PEARL:
      return speculation::PearlSpeedup(alpha, cost_ratio, window);
    case v1::METHOD_ASYNC:
      return speculation::AsyncSpeedup(
          alpha, cost_ratio,
          speculation::BestGate(alpha, cost_ratio, kMaxGate));
    default:
      return std::nullopt;
  }
}

std::optional<double> StepGapUs(const BenchResult& result, int method) {
  std::vector<double> gaps;
  for (const auto* answers : {&result.answers, &result.traced}) {
    for (const BenchAnswer& answer : *answers) {
      if (answer.method != method) continue;
      for (const uint64_t gap : answer.complete.speculation().step_gap_ns()) {
        gaps.push_back(static_cast<double>(gap) / 1e3);
      }
    }
  }
  if (gaps.empty()) return std::nullopt;
  return Median(std::move(gaps));
}

std::optional<double> HitRate(const v1::SpeculationReport& report) {
  double mismatches = 0.0;
  for (int i = 1; i < report.ranks_size(); ++i) {
    mismatches += static_cast<double>(report.ranks(i));
  }
  if (mismatches == 0.0) return std::nullopt;
  return static_cast<double>(report.prepared()) / mismatches;
}

MethodSummary SummarizeOne(const BenchPlan& plan, const BenchResult& result,
                           int method) {
  Totals totals;
  totals.tokens.assign(plan.repeat, 0.0);
  for (const BenchAnswer& answer : result.answers) {
    if (answer.method == method) totals.Add(answer);
  }
  MethodSummary summary;
  summary.method = plan.methods[method];
  for (int repeat = 0; repeat < plan.repeat; ++repeat) {
    summary.tokens_per_second_repeats.push_back(
        Ratio(totals.tokens[repeat], result.wall_s[method][repeat]));
  }
  summary.tokens_per_second = Median(summary.tokens_per_second_repeats);
  summary.window = Median(totals.windows);
  summary.acceptance_rate = AcceptanceRate(totals.report);
  summary.mean_accepted_length = MeanAcceptedLength(totals.report);
  summary.draft_wait_share =
      Ratio(totals.draft_wait_s, totals.draft_busy_s + totals.draft_wait_s);
  summary.target_wait_share =
      Ratio(totals.target_wait_s, totals.target_busy_s + totals.target_wait_s);
  summary.target_wait_after_miss_share =
      Ratio(totals.target_wait_after_miss_s,
            totals.target_busy_s + totals.target_wait_s);
  summary.alpha = Median(totals.alphas);
  summary.cost_ratio = Median(totals.cost_ratios);
  summary.law_speedup = LawSpeedup(summary);
  summary.step_gap_us = StepGapUs(result, method);
  summary.ttft_s = PercentilesOf(totals.ttft_s);
  summary.inter_token_s = PercentilesOf(totals.inter_token_s);
  summary.degraded_rounds = totals.report.degraded_rounds();
  summary.paid = totals.paid;
  summary.ranks.assign(totals.report.ranks().begin(),
                       totals.report.ranks().end());
  summary.hit_rate = HitRate(totals.report);
  summary.suffix_proposed = totals.report.suffix_proposed();
  summary.suffix_accepted = totals.report.suffix_accepted();
  return summary;
}

absl::Status Difference(const BenchPlan& plan, const BenchAnswer& a,
                        const BenchAnswer& b) {
  const auto& ids_a = a.complete.token_ids();
  const auto& ids_b = b.complete.token_ids();
  int at = 0;
  while (at < std::min(ids_a.size(), ids_b.size()) && ids_a[at] == ids_b[at]) {
    ++at;
  }
  const auto token = [at](const auto& ids) {
    return at < ids.size() ? absl::StrCat("token id ", ids[at])
                           : std::string("the end");
  };
  return absl::DataLossError(absl::StrFormat(
      "prompt \"%s\": the answers differ at token %d: %s (repetition %d) has "
      "%s, %s (repetition %d) has %s",
      plan.prompts[a.prompt].id, at, plan.methods[a.method].name, a.repeat + 1,
      token(ids_a), plan.methods[b.method].name, b.repeat + 1, token(ids_b)));
}

bool SameTokens(const BenchAnswer& a, const BenchAnswer& b) {
  return std::equal(
      a.complete.token_ids().begin(), a.complete.token_ids().end(),
      b.complete.token_ids().begin(), b.complete.token_ids().end());
}

// Its tokens are of the same law only.
bool IsRatio(const BenchAnswer& answer) {
  return answer.complete.speculation().verification() == v1::VERIFICATION_RATIO;
}

// The last columns of a line of the table.
std::string PredictionCells(const MethodSummary& summary) {
  if (!summary.prediction.has_value()) {
    return absl::StrFormat("  %9s  %9s  %6s", "-", "-", "-");
  }
  return absl::StrFormat(
      "  %9.1f  %8.1f%%  %6s", summary.prediction->tokens_per_second,
      100.0 * *summary.of_predicted,
      summary.law_applies ? absl::StrFormat("%.2f", *summary.law_speedup)
                          : "-");
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json PredictionJson(const MethodSummary& summary) {
  if (!summary.prediction.has_value()) return nullptr;
  const BenchPrediction& prediction = *summary.prediction;
  return {{"tokens_per_second", prediction.tokens_per_second},
          {"of_predicted", OrNull(summary.of_predicted)},
          {"speedup", OrNull(prediction.speedup)},
          {"mean_accepted_length", prediction.mean_accepted_length},
          {"hit_rate", OrNull(prediction.hit_rate)},
          {"law_applies", summary.law_applies},
          {"prefill_share", prediction.prefill_share},
          {"held_up_share", prediction.held_up_share},
          {"target_step", StepsJson(prediction.target_step)},
          {"draft_step", prediction.draft_step.has_value()
                             ? StepsJson(*prediction.draft_step)
                             : Json(nullptr)}};
}

Json PercentilesJson(const Percentiles& values) {
  return {{"p50", values.p50}, {"p95", values.p95}, {"p99", values.p99}};
}

}  // namespace

bool AnyPrediction(const std::vector<MethodSummary>& summaries) {
  return std::any_of(summaries.begin(), summaries.end(),
                     [](const MethodSummary& summary) {
                       return summary.prediction.has_value();
                     });
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2.0;
}

std::vector<MethodSummary> Summarize(const BenchPlan& plan,
                                     const BenchResult& result) {
  std::vector<MethodSummary> summaries;
  std::optional<double> ar;
  for (size_t method = 0; method < plan.methods.size(); ++method) {
    summaries.push_back(SummarizeOne(plan, result, static_cast<int>(method)));
    if (plan.methods[method].method == v1::METHOD_AR) {
      ar = summaries.back().tokens_per_second;
    }
  }
  if (ar.has_value()) {
    for (MethodSummary& summary : summaries) {
      summary.speedup = Ratio(summary.tokens_per_second, *ar);
    }
  }
  return summaries;
}

void AddPredictions(
    const BenchPlan& plan,
    const std::vector<std::optional<BenchPrediction>>& predictions,
    std::vector<MethodSummary>* summaries) {
  for (size_t method = 0; method < summaries->size(); ++method) {
    MethodSummary& summary = (*summaries)[method];
    summary.prediction = predictions[method];
    if (!summary.prediction.has_value()) continue;
    summary.of_predicted =
        Ratio(summary.tokens_per_second, summary.prediction->tokens_per_second);
    summary.law_applies = summary.law_speedup.has_value() &&
                          LawApplies(plan, summary.method, *summary.prediction,
                                     summary.window, summary.cost_ratio);
  }
}

std::string IdentityText(const BenchPlan& plan, const BenchResult& result) {
  std::set<int> ratio;
  for (const auto* answers : {&result.answers, &result.traced}) {
    for (const BenchAnswer& answer : *answers) {
      if (IsRatio(answer)) ratio.insert(answer.method);
    }
  }
  std::string text = CheckIdentical(plan, result).ok()
                         ? absl::StrFormat("yes (%d prompts x %d methods)",
                                           plan.prompts.size(),
                                           plan.methods.size() - ratio.size())
                         : "no";
  if (!ratio.empty()) {
    absl::StrAppendFormat(&text,
                          "; %d methods with the ratio test are not compared",
                          ratio.size());
  }
  return text;
}

absl::Status CheckIdentical(const BenchPlan& plan, const BenchResult& result) {
  std::vector<const BenchAnswer*> first(plan.prompts.size(), nullptr);
  for (const auto* answers : {&result.answers, &result.traced}) {
    for (const BenchAnswer& answer : *answers) {
      if (IsRatio(answer)) continue;
      const BenchAnswer*& expected = first[answer.prompt];
      if (expected == nullptr) {
        expected = &answer;
      } else if (!SameTokens(*expected, answer)) {
        return Difference(plan, *expected, answer);
      }
    }
  }
  return absl::OkStatus();
}

std::string SummaryTable(const std::vector<MethodSummary>& summaries) {
  size_t width = 6;
  for (const MethodSummary& summary : summaries) {
    width = std::max(width, summary.method.name.size());
  }
  const bool predicted = AnyPrediction(summaries);
  std::string table = absl::StrFormat(
      "%-*s  window  tokens/s  speed-up  acceptance  accepted  target    "
      "draft%s\n%-*s                    over ar   rate        length    "
      "waiting "
      "  waiting%s\n",
      width, "method", predicted ? "    predicted  of pre-    closed" : "",
      width, "", predicted ? "  tokens/s   dicted     law" : "");
  for (const MethodSummary& summary : summaries) {
    const bool ar = summary.method.method == v1::METHOD_AR;
    absl::StrAppendFormat(
        &table, "%-*s  %6s  %8.1f  %8s  %10s  %8.2f  %7.1f%%  %7s%s\n", width,
        summary.method.name, ar ? "-" : absl::StrFormat("%.0f", summary.window),
        summary.tokens_per_second,
        summary.speedup ? absl::StrFormat("%.2f", *summary.speedup) : "-",
        summary.has_draft()
            ? absl::StrFormat("%.1f%%", 100.0 * summary.acceptance_rate)
            : "-",
        summary.mean_accepted_length, 100.0 * summary.target_wait_share,
        ar ? "-" : absl::StrFormat("%.1f%%", 100.0 * summary.draft_wait_share),
        predicted ? PredictionCells(summary) : "");
  }
  return table;
}

std::string OwnDraftLines(const std::vector<MethodSummary>& summaries) {
  std::string lines;
  for (const MethodSummary& summary : summaries) {
    if (summary.suffix_proposed == 0) continue;
    absl::StrAppendFormat(
        &lines,
        "%s: of the target's own drafts %d of %d verified accepted (%.1f%%)\n",
        summary.method.name, summary.suffix_accepted, summary.suffix_proposed,
        100.0 * Ratio(summary.suffix_accepted, summary.suffix_proposed));
  }
  return lines;
}

std::string TreeTable(const std::vector<MethodSummary>& summaries) {
  size_t width = 6;
  for (const MethodSummary& summary : summaries) {
    width = std::max(width, summary.method.name.size());
  }
  const auto percent = [](const std::optional<double>& share) {
    return share.has_value() ? absl::StrFormat("%.1f%%", 100.0 * *share) : "-";
  };
  std::string lines;
  for (const MethodSummary& summary : summaries) {
    if (summary.method.method == v1::METHOD_AR ||
        !summary.prediction.has_value()) {
      continue;
    }
    absl::StrAppendFormat(
        &lines, "%-*s  %8.2f  %9.2f  %8s  %9s\n", width, summary.method.name,
        summary.mean_accepted_length, summary.prediction->mean_accepted_length,
        percent(summary.hit_rate), percent(summary.prediction->hit_rate));
  }
  if (lines.empty()) return lines;
  return absl::StrFormat(
      "%-*s  tokens a step        hit rate\n%-*s  measured  predicted  "
      "measured  predicted\n%s",
      width, "method", width, "", lines);
}

std::string LatencyTable(const std::vector<MethodSummary>& summaries) {
  size_t width = 6;
  for (const MethodSummary& summary : summaries) {
    width = std::max(width, summary.method.name.size());
  }
  std::string table = absl::StrFormat(
      "%-*s  first token, ms            between tokens, ms\n"
      "%-*s     p50      p95      p99      p50      p95      p99\n",
      width, "method", width, "");
  for (const MethodSummary& summary : summaries) {
    absl::StrAppendFormat(&table, "%-*s", width, summary.method.name);
    for (const Percentiles& each : {summary.ttft_s, summary.inter_token_s}) {
      for (const double seconds : {each.p50, each.p95, each.p99}) {
        absl::StrAppendFormat(&table, "%9.2f", seconds * 1e3);
      }
    }
    absl::StrAppend(&table, "\n");
  }
  return table;
}

Json SummariesJson(const std::vector<MethodSummary>& summaries) {
  Json array = Json::array();
  for (const MethodSummary& summary : summaries) {
    array.push_back(
        {{"name", summary.method.name},
         {"method", std::string(MethodName(summary.method.method))},
         {"window", summary.window},
         {"requested_window", OrNull(summary.method.window)},
         {"policy", summary.method.policy},
         {"tokens_per_second", summary.tokens_per_second},
         {"tokens_per_second_repeats", summary.tokens_per_second_repeats},
         {"speedup", OrNull(summary.speedup)},
         {"acceptance_rate", summary.acceptance_rate},
         {"mean_accepted_length", summary.mean_accepted_length},
         {"draft_wait_share", summary.draft_wait_share},
         {"target_wait_share", summary.target_wait_share},
         {"target_wait_after_miss_share", summary.target_wait_after_miss_share},
         {"alpha", summary.alpha},
         {"cost_ratio", summary.cost_ratio},
         {"law_speedup", OrNull(summary.law_speedup)},
         {"predicted", PredictionJson(summary)},
         {"step_gap_us", OrNull(summary.step_gap_us)},
         {"degraded_rounds", summary.degraded_rounds},
         {"rounds", summary.paid.rounds},
         {"drafted", summary.paid.drafted},
         {"accepted", summary.paid.accepted},
         {"rows_verified", OrNull(summary.paid.rows_verified)},
         {"rows_used", OrNull(summary.paid.rows_used)},
         {"ranks", summary.ranks},
         {"hit_rate", OrNull(summary.hit_rate)},
         {"suffix_proposed", summary.suffix_proposed},
         {"suffix_accepted", summary.suffix_accepted},
         {"ttft_s", PercentilesJson(summary.ttft_s)},
         {"inter_token_s", PercentilesJson(summary.inter_token_s)}});
  }
  return array;
}

Json RequestsJson(const BenchPlan& plan, const BenchResult& result) {
  Json array = Json::array();
  for (const BenchAnswer& answer : result.answers) {
    const v1::Complete& complete = answer.complete;
    const v1::SpeculationReport& report = complete.speculation();
    array.push_back(
        {{"prompt", plan.prompts[answer.prompt].id},
         {"name", plan.methods[answer.method].name},
         {"repeat", answer.repeat},
         {"seconds", answer.seconds},
         {"ttft_s", answer.ttft_s},
         {"prompt_tokens", complete.usage().prompt_tokens()},
         {"completion_tokens", complete.token_ids_size()},
         {"finish_reason",
          std::string(FinishReasonName(complete.finish_reason()))},
         {"window", report.window()},
         {"policy", report.policy()},
         {"rounds", report.rounds()},
         {"drafted", report.drafted()},
         {"verified", report.verified()},
         {"accepted", report.accepted()},
         {"committed", report.committed()},
         {"degraded_rounds", report.degraded_rounds()},
         {"ranks",
          std::vector<uint64_t>(report.ranks().begin(), report.ranks().end())},
         {"prepared", report.prepared()},
         {"suffix_proposed", report.suffix_proposed()},
         {"suffix_accepted", report.suffix_accepted()},
         {"alpha", report.alpha()},
         {"cost_ratio", report.cost_ratio()},
         {"draft_busy_s", Seconds(complete.timing().draft_busy())},
         {"draft_wait_s", Seconds(complete.timing().draft_wait())},
         {"target_busy_s", Seconds(complete.timing().target_busy())},
         {"target_wait_s", Seconds(complete.timing().target_wait())},
         {"target_wait_after_miss_s",
          Seconds(complete.timing().target_wait_after_miss())}});
  }
  return array;
}

}  // namespace nacre::tools
