#include "speculation/plan.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "speculation/law.h"

namespace nacre::speculation {
namespace {

constexpr int kMaxChosenWindow = 16;  // for sd and pearl, chosen by us
constexpr int kMaxAsyncWindow = 32;
constexpr double kMinGateTimeoutNs = 2e6;
constexpr double kUnknownDraftTokenNs = 25e6;

// Twice the expected arrival of the tokens that the gate waits for: the verdict
// goes to the draft, which ends its useless token, and they come back.
int64_t GateTimeoutNs(int gate, const StepCosts& costs) {
  const double token_ns =
      costs.draft_token_ns > 0.0 ? costs.draft_token_ns : kUnknownDraftTokenNs;
  const double expected = 2.0 * costs.hop_ns + (gate + 1) * token_ns;
  return static_cast<int64_t>(std::max(kMinGateTimeoutNs, 2.0 * expected));
}

// What a wait costs beyond the tokens, in target steps: the way of a verdict to
// the draft and of its token back, and the token that the draft is in the
// middle of. Half a token where it is, and it is about every other time.
double RoundTrip(double cost_ratio, const StepCosts& costs) {
  if (costs.draft_token_ns <= 0.0) return 0.0;
  return (2.0 * costs.hop_ns / costs.draft_token_ns + 0.25) / cost_ratio;
}

// Near their optimum both laws are flat, and every drafted token that is not
// used still costs power, and bandwidth where devices share it: the smallest
// window within this factor of the best one is taken, and no gate that gains
// less.
constexpr double kGoodWindow = 0.99;
constexpr double kGoodGate = 0.995;

// What the other sessions of a step commit by it: as this one would, were its
// window theirs.
double OtherTokens(double alpha, const StepCosts& costs) {
  const double sessions = std::min(costs.other_sessions, costs.other_rows);
  if (sessions <= 0.0) return 0.0;
  const double a = ClampAlpha(alpha);
  return sessions * (1.0 - std::pow(a, costs.other_rows / sessions)) /
         (1.0 - a);
}

// m*, or less where it hardly matters to this session.
int AsyncWindow(double alpha, int max_window, double other_tokens,
                const std::function<double(int rows)>& step_time) {
  const auto rate = [&](int window) {
    return (ExpectedCommitted(alpha, window) + other_tokens) /
           step_time(window + 1);
  };
  const int best = BestWindow(alpha, max_window, step_time, other_tokens);
  const double own_share = ExpectedCommitted(alpha, best) /
                           (ExpectedCommitted(alpha, best) + other_tokens);
  const double good = 1.0 - (1.0 - kGoodWindow) * own_share;
  int window = 0;
  while (rate(window) < good * rate(best)) ++window;
  return window;
}

// w*, or none where it hardly matters.
int AsyncGate(double alpha, double cost_ratio, int window, double round_trip) {
  const int best = BestGate(alpha, cost_ratio, window, round_trip);
  const bool matters =
      AsyncSpeedup(alpha, cost_ratio, 0, round_trip) <
      kGoodGate * AsyncSpeedup(alpha, cost_ratio, best, round_trip);
  return matters ? best : 0;
}

// The lead of async after a mismatch, at most `lead`. The first verdict finds
// the draft in the middle of a token, which a mismatch makes a waste that holds
// up the next one. Where a mismatch is likelier than this token is useful, the
// draft stops before it.
int FirstLead(double alpha, int gate, int lead, double cost_ratio,
              const StepCosts& costs) {
  double tokens = cost_ratio;  // drafted until the verdict is there
  if (gate > 0 && costs.draft_token_ns > 0.0) {
    tokens += 2.0 * costs.hop_ns / costs.draft_token_ns;
  }
  tokens = std::min(tokens, static_cast<double>(kMaxLead));
  const double whole = std::floor(tokens);
  const double match = std::pow(ClampAlpha(alpha), gate + 1);
  if (tokens - whole > 1.0 - match) return lead;
  return std::clamp(gate + static_cast<int>(whole), 1, std::max(lead, 1));
}

}  // namespace

double StepCosts::CostRatio() const {
  if (target == nullptr || target->empty() || draft_token_ns <= 0.0) return 5.0;
  return std::clamp(target->At(1 + other_rows) / draft_token_ns, 0.01, 1000.0);
}

PipelinePlan MakePlan(const PlanInputs& inputs) {
  const double cost_ratio = inputs.costs.CostRatio();
  PipelinePlan plan;
  switch (inputs.method) {
    case Method::kAr:
      return plan;
    case Method::kSd: {
      const int window = inputs.window.value_or(
          BestSdWindow(inputs.alpha, cost_ratio, kMaxChosenWindow));
      plan.window = window;
      plan.draft = {window, window};
      plan.target = {window, window, window, 0};
      break;
    }
    case Method::kPearl: {
      const int window =
          inputs.window.value_or(PearlWindow(cost_ratio, kMaxChosenWindow));
      plan.window = window;
      plan.draft = {window, 2 * window - 1};
      plan.target = {0, window - 1, window - 1, 0};
      break;
    }
    case Method::kAsync: {
      const auto step_time = [&inputs](int rows) {
        const StepTimeCurve* curve = inputs.costs.target;
        return curve == nullptr || curve->empty()
                   ? 1.0
                   : curve->At(inputs.costs.other_rows + rows);
      };
      const int window =
          AsyncWindow(inputs.alpha, inputs.window.value_or(kMaxAsyncWindow),
                      OtherTokens(inputs.alpha, inputs.costs), step_time);
      const int lead = 2 * window + 1;
      // A target that others keep busy saves nothing by waiting: who waits
      // misses the step.
      const bool shared =
          inputs.costs.other_sessions > 0 && inputs.costs.other_rows > 0;
      const int gate = shared ? 0
                              : AsyncGate(inputs.alpha, cost_ratio, window,
                                          RoundTrip(cost_ratio, inputs.costs));
      plan.window = window;
      plan.draft = {
          FirstLead(inputs.alpha, gate, lead, cost_ratio, inputs.costs), lead};
      plan.target = {gate, 0, window, 0};
      break;
    }
  }
  plan.target.gate_timeout_ns = GateTimeoutNs(
      std::max(plan.target.gate_after_mismatch, plan.target.gate_in_flow),
      inputs.costs);
  return plan;
}

}  // namespace nacre::speculation
