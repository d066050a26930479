// How fast the methods of a benchmark would have been without overhead. The
// simulator (simulation/fleet.h) runs the requests of the run. It takes the
// matches that were recorded and the step times measured while the methods ran.
// Pure.

#ifndef TOOLS_BENCH_BENCH_PREDICTION_H_
#define TOOLS_BENCH_BENCH_PREDICTION_H_

#include <optional>
#include <vector>

#include "common/step_times.h"
#include "simulation/match_source.h"
#include "tools/bench/bench_run.h"

namespace nacre::tools {

struct BenchPrediction {
  double tokens_per_second = 0.0;
  // Over the prediction for `ar`; unset where the run has no `ar`.
  std::optional<double> speedup;
  // What it was predicted from.
  StepTimes target_step;
  std::optional<StepTimes> draft_step;  // unset: no draft stepped
  double prefill_share = 0.0;           // of the target's time in steps
  double held_up_share = 0.0;           // StepRecorder::HeldUpShare
  // Of the simulation, as of MethodSummary.
  double mean_accepted_length = 0.0;
  std::optional<double> hit_rate;
};

// By method. Each is simulated with its own step times: where the two models
// share memory or cores, overlapping methods have slower steps. `matches`: by
// prompt (bench_matches.h); may be empty where only `ar` ran. Unset: the run
// recorded no steps of a target, or no answer has a token. Or the method has a
// length policy of its own, the ratio test, or a tree that ranks by what no
// trace says.
std::vector<std::optional<BenchPrediction>> Predict(
    const BenchPlan& plan, const BenchResult& result,
    const std::vector<simulation::MatchTrace>& matches);

// Whether the closed laws (speculation/law.h) assume what was the case, to 5 %:
// - one stream, prompts that cost little;
// - target steps as long as one row's up to `window` + 1 rows;
// - for pearl a window <= c;
// - for async a whole c, no window of the user's and chains.
bool LawApplies(const BenchPlan& plan, const BenchMethod& method,
                const BenchPrediction& prediction, double window,
                double cost_ratio);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_BENCH_PREDICTION_H_
