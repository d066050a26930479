#include "tools/bench/bench_prediction.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "common/check.h"
#include "proto/names.h"
#include "simulation/fleet.h"
#include "speculation/pipeline.h"

namespace nacre::tools {
namespace {

using simulation::FleetOptions;
using simulation::MatchTrace;
using simulation::ReplayedRequest;

constexpr double kTolerance = 0.05;

// As the repetitions of one method fed and generated them on average.
struct MeasuredRequest {
  double prompt_tokens = 0.0;
  double output_tokens = 0.0;
  int count = 0;
};

std::vector<ReplayedRequest> Requests(const BenchPlan& plan,
                                      const BenchResult& result, int method,
                                      const std::vector<MatchTrace>& matches) {
  std::vector<MeasuredRequest> measured(plan.prompts.size());
  for (const BenchAnswer& answer : result.answers) {
    if (answer.method != method) continue;
    MeasuredRequest& sum = measured[answer.prompt];
    const v1::Usage& usage = answer.complete.usage();
    sum.prompt_tokens += usage.prompt_tokens() -
                         std::min(usage.cached_tokens(), usage.prompt_tokens());
    sum.output_tokens += answer.complete.token_ids_size();
    ++sum.count;
  }
  std::vector<ReplayedRequest> requests;
  for (int i = 0; i < NumRequests(plan); ++i) {
    const size_t prompt = i % plan.prompts.size();
    const MeasuredRequest& sum = measured[prompt];
    if (sum.output_tokens == 0.0) continue;
    ReplayedRequest request;
    request.prompt_tokens = std::max(
        1, static_cast<int>(std::lround(sum.prompt_tokens / sum.count)));
    request.output_tokens =
        static_cast<int>(std::lround(sum.output_tokens / sum.count));
    // It is not read in `ar`, nor where there is one token.
    const bool recorded = prompt < matches.size() && !matches[prompt].empty();
    request.matches = std::make_shared<const MatchTrace>(
        recorded ? matches[prompt] : MatchTrace{false});
    requests.push_back(std::move(request));
  }
  return requests;
}

// Whether its tree is one that a trace says enough of and that a simulation
// has: a chain, or best of async.
bool IsSimulated(const BenchMethod& method) {
  return !method.has_tree() || (method.method == v1::METHOD_ASYNC &&
                                (method.tree.empty() || method.tree == "best"));
}

std::optional<BenchPrediction> PredictOne(
    const BenchPlan& plan, const BenchResult& result, int method,
    const std::vector<MatchTrace>& matches) {
  const BenchMethod& measured = plan.methods[method];
  if (measured.has_policy_rule() || measured.is_ratio() ||
      !IsSimulated(measured)) {
    return std::nullopt;
  }
  const StepRecorder& steps = result.steps[method];
  const std::optional<StepTimes> target_step =
      steps.Curve(v1::WORKER_ROLE_TARGET);
  FleetOptions fleet;
  fleet.replay = Requests(plan, result, method, matches);
  if (!target_step.has_value() || fleet.replay.empty()) return std::nullopt;
  BenchPrediction prediction = {
      .target_step = *target_step,
      .draft_step = steps.Curve(v1::WORKER_ROLE_DRAFT),
      .prefill_share = steps.PrefillShare(),
      .held_up_share = steps.HeldUpShare()};
  const auto name = speculation::MethodFromName(MethodName(measured.method));
  NACRE_CHECK(name.has_value(), "a method of the API is one of the schedule");
  fleet.method.method = *name;
  if (measured.window.has_value()) {
    fleet.method.window = static_cast<int>(*measured.window);
  }
  const auto ablation = speculation::AblationFromName(measured.ablation);
  NACRE_CHECK(ablation.has_value(), "bench_methods.h knows the ablations");
  fleet.method.ablation = *ablation;
  if (measured.has_tree()) {
    fleet.draft_rows = plan.draft_rows;
    fleet.tree_rows = plan.tree_rows;
  }
  const int64_t hop_ns = std::llround(1e3 * plan.latency_us);
  fleet.target_hop = fleet.draft_hop = {hop_ns, hop_ns};
  fleet.streams = plan.streams;
  fleet.targets = steps.num_workers(v1::WORKER_ROLE_TARGET);
  fleet.drafts = steps.num_workers(v1::WORKER_ROLE_DRAFT);
  fleet.abandons_steps = steps.abandons_steps();
  fleet.target_step = *target_step;
  if (prediction.draft_step.has_value()) {
    fleet.draft_step = *prediction.draft_step;
  }
  const simulation::FleetResult simulated = simulation::SimulateFleet(fleet);
  prediction.tokens_per_second = simulated.tokens_per_second();
  prediction.mean_accepted_length = simulated.mean_accepted_length();
  prediction.hit_rate = simulated.hit_rate();
  return prediction;
}

bool Within(double value, double most) {
  return value <= most * (1.0 + kTolerance);
}

}  // namespace

std::vector<std::optional<BenchPrediction>> Predict(
    const BenchPlan& plan, const BenchResult& result,
    const std::vector<MatchTrace>& matches) {
  const int num_methods = static_cast<int>(plan.methods.size());
  std::vector<std::optional<BenchPrediction>> predictions(num_methods);
  if (result.steps.empty()) return predictions;
  std::optional<double> ar;
  for (int method = 0; method < num_methods; ++method) {
    predictions[method] = PredictOne(plan, result, method, matches);
    if (plan.methods[method].method == v1::METHOD_AR &&
        predictions[method].has_value()) {
      ar = predictions[method]->tokens_per_second;
    }
  }
  for (std::optional<BenchPrediction>& prediction : predictions) {
    if (prediction.has_value() && ar.has_value()) {
      prediction->speedup = prediction->tokens_per_second / *ar;
    }
  }
  return predictions;
}

bool LawApplies(const BenchPlan& plan, const BenchMethod& method,
                const BenchPrediction& prediction, double window,
                double cost_ratio) {
  if (plan.streams > 1 || prediction.prefill_share > kTolerance) return false;
  if (method.method == v1::METHOD_AR) return true;
  if (method.has_tree() && plan.draft_rows > 1) return false;
  const int rows = static_cast<int>(std::lround(window)) + 1;
  if (!Within(static_cast<double>(prediction.target_step.At(rows)),
              static_cast<double>(prediction.target_step.At(1)))) {
    return false;
  }
  switch (method.method) {
    case v1::METHOD_SD:
      return true;
    case v1::METHOD_PEARL:
      return Within(window, cost_ratio);
    default:
      return !method.window.has_value() && std::round(cost_ratio) >= 1.0 &&
             std::abs(cost_ratio - std::round(cost_ratio)) <=
                 kTolerance * cost_ratio;
  }
}

}  // namespace nacre::tools
