// What `nacre bench` says about its measurements. Pure.

#ifndef TOOLS_BENCH_BENCH_REPORT_H_
#define TOOLS_BENCH_BENCH_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/json.h"
#include "tools/bench/bench_prediction.h"
#include "tools/bench/bench_run.h"
#include "tools/bench/latency.h"

namespace nacre::tools {

// The middle value; the mean of both with an even count; 0 for none.
double Median(std::vector<double> values);

// What was paid for tokens, over all requests of a method (SpeculationReport).
struct PaidWork {
  uint64_t rounds = 0;    // target steps
  uint64_t drafted = 0;   // tokens that the draft sent, branches included
  uint64_t accepted = 0;  // of them the right ones
  // Draft tokens that steps verified, each in a row of its own, and those that
  // became text. These are all that a step committed but one, which is the
  // target's. (So one too few where an answer ends with such a row.) Unset:
  // rounds were not told one by one.
  std::optional<uint64_t> rows_verified;
  std::optional<uint64_t> rows_used;
};

// All requests of one method.
struct MethodSummary {
  BenchMethod method;
  double window = 0.0;  // median of those in force at the end of the requests
  // Generated tokens over wall time of all prompts, one a repetition.
  std::vector<double> tokens_per_second_repeats;
  double tokens_per_second = 0.0;  // their median
  // Ratio of the medians; unset where the run has no `ar`.
  std::optional<double> speedup;
  double acceptance_rate = 0.0;       // accepted / verified, over all requests
  double mean_accepted_length = 0.0;  // committed / target steps
  double draft_wait_share = 0.0;      // wait / (busy + wait)
  double target_wait_share = 0.0;
  // Of target_wait_share, after a miss (Timing.target_wait_after_miss).
  double target_wait_after_miss_share = 0.0;
  double alpha = 0.0;       // median of the schedule's estimates
  double cost_ratio = 0.0;  // likewise; 0: not measured
  // The closed law (speculation/law.h) at the measured acceptance rate and cost
  // ratio; unset where either was not measured. `async` at its best gate.
  std::optional<double> law_speedup;
  // Median from the end of a step to the start of the next, gate open, in
  // microseconds; unset where no such step was traced.
  std::optional<double> step_gap_us;
  uint64_t degraded_rounds = 0;
  PaidWork paid;
  // Of SpeculationReport, over all requests; empty: no draft reported ranks.
  std::vector<uint64_t> ranks;
  // Of those above 1, mismatches, how many found the next position prepared on
  // a branch; unset: there was none.
  std::optional<double> hit_rate;
  // What the target proposed itself, over all requests.
  uint64_t suffix_proposed = 0;
  uint64_t suffix_accepted = 0;
  Percentiles ttft_s;         // over all requests, the client's clock
  Percentiles inter_token_s;  // over all tokens (latency.h)
  // Unset until AddPredictions.
  std::optional<BenchPrediction> prediction;
  // tokens_per_second over the prediction; unset with it.
  std::optional<double> of_predicted;
  bool law_applies = false;  // LawApplies, where there is a law_speedup

  // Whether a draft worker drafted anything. Else there is no acceptance rate,
  // however much of the target's own drafts was right.
  bool has_draft() const { return paid.drafted > 0; }
};

std::vector<MethodSummary> Summarize(const BenchPlan& plan,
                                     const BenchResult& result);

// `predictions`: one a method, from Predict.
void AddPredictions(
    const BenchPlan& plan,
    const std::vector<std::optional<BenchPrediction>>& predictions,
    std::vector<MethodSummary>* summaries);

// Whether something was predicted of any of them.
bool AnyPrediction(const std::vector<MethodSummary>& summaries);

// OK if all methods and repetitions gave the same tokens for each prompt, those
// with the ratio test aside; otherwise DATA_LOSS with the first difference.
absl::Status CheckIdentical(const BenchPlan& plan, const BenchResult& result);
// That, and of how many, in words.
std::string IdentityText(const BenchPlan& plan, const BenchResult& result);

// The table for people, with its heading, lines ended. Where something was
// predicted, so that is beside, and the law where it applies.
std::string SummaryTable(const std::vector<MethodSummary>& summaries);

// What became of the target's own drafts: a line for each method that had some.
std::string OwnDraftLines(const std::vector<MethodSummary>& summaries);

// What trees gave beside what was predicted of them: tokens a target step and
// the hit rate, of the methods that draft. For people; empty where nothing was
// predicted of such.
std::string TreeTable(const std::vector<MethodSummary>& summaries);

// What a client waited, for people.
std::string LatencyTable(const std::vector<MethodSummary>& summaries);

// `methods` and `requests` of bench --json.
nlohmann::ordered_json SummariesJson(
    const std::vector<MethodSummary>& summaries);
nlohmann::ordered_json RequestsJson(const BenchPlan& plan,
                                    const BenchResult& result);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_BENCH_REPORT_H_
