#include "simulation/closed_law.h"

#include <cmath>

#include "speculation/law.h"
#include "speculation/plan.h"

namespace nacre::simulation {

using speculation::Method;

namespace {

// As MakePlan chooses them.
constexpr int kMaxChosenWindow = 16;
constexpr int kMaxAsyncWindow = 32;
// What a target may verify while it is as far ahead of the acknowledgement as
// it gets without delays.
constexpr int kMaxVerified = 48;
constexpr int kLongAnswer = 1000;

bool NoDelay(LinkDelay delay) { return delay.max_ns == 0; }

bool CommonAssumptionsHold(const FleetOptions& o) {
  return o.recorded.empty() && o.replay.empty() && o.alpha >= 0.01 &&
         o.alpha <= 0.99 && o.streams == 1 && o.output_tokens >= kLongAnswer &&
         o.prompt_tokens == 1 && o.target_step.flat() && o.draft_step.flat() &&
         NoDelay(o.target_hop) && NoDelay(o.draft_hop) && o.failures.empty();
}

int SdWindow(const FleetOptions& o) {
  return o.method.window.value_or(
      speculation::BestSdWindow(o.alpha, CostRatio(o), kMaxChosenWindow));
}

int PearlWindow(const FleetOptions& o) {
  return o.method.window.value_or(
      speculation::PearlWindow(CostRatio(o), kMaxChosenWindow));
}

int AsyncGate(const FleetOptions& o) {
  return speculation::BestGate(o.alpha, CostRatio(o), speculation::kMaxWindow);
}

bool IsWhole(double c) {
  return std::round(c) >= 1.0 && std::abs(c - std::round(c)) < 1e-9 * c;
}

}  // namespace

double CostRatio(const FleetOptions& options) {
  return static_cast<double>(options.target_step.At(1)) /
         static_cast<double>(options.draft_step.At(1));
}

absl::optional<double> ClosedLaw(const FleetOptions& options) {
  if (!CommonAssumptionsHold(options)) return absl::nullopt;
  if (options.method.method == Method::kAr) return 1.0;
  if (options.drafts < 1 ||
      options.method.ablation != speculation::Ablation::kNone) {
    return absl::nullopt;
  }
  const double c = CostRatio(options);
  switch (options.method.method) {
    case Method::kSd:
      if (SdWindow(options) > kMaxVerified) return absl::nullopt;
      return speculation::SdSpeedup(options.alpha, c, SdWindow(options));
    case Method::kPearl: {
      const int window = PearlWindow(options);
      if (window > c * (1.0 + 1e-9) || window > kMaxVerified) {
        return absl::nullopt;
      }
      return speculation::PearlSpeedup(options.alpha, c, window);
    }
    default:
      if (!IsWhole(c) || c > kMaxAsyncWindow ||
          options.method.window.has_value() || options.draft_rows > 1) {
        return absl::nullopt;
      }
      return speculation::AsyncSpeedup(options.alpha, c, AsyncGate(options));
  }
}

speculation::PipelinePlan LawPlan(const FleetOptions& options) {
  speculation::StepTimeCurve curve;
  for (int rows = 1; rows <= speculation::StepTimeCurve::kMaxRows; ++rows) {
    curve.Add(rows, options.target_step.At(rows));
  }
  speculation::PlanInputs inputs;
  inputs.method = options.method.method;
  inputs.window = options.method.window;
  inputs.alpha = options.alpha;
  inputs.costs.target = &curve;
  inputs.costs.draft_token_ns = static_cast<double>(options.draft_step.At(1));
  inputs.costs.hop_ns =
      options.target_hop.mean_ns() + options.draft_hop.mean_ns();
  if (inputs.method == Method::kSd) inputs.window = SdWindow(options);
  if (inputs.method == Method::kPearl) inputs.window = PearlWindow(options);
  speculation::PipelinePlan plan = speculation::MakePlan(inputs);
  if (inputs.method == Method::kAsync) {
    // A draft without pause, a target that takes all there is.
    plan.window = options.method.window.value_or(speculation::kMaxWindow);
    plan.draft = {speculation::kMaxLead, speculation::kMaxLead};
    plan.target.window = plan.window;
    plan.target.gate_after_mismatch = AsyncGate(options);
  }
  return plan;
}

}  // namespace nacre::simulation
