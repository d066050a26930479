#include "speculation/plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/types/optional.h"
#include "speculation/gates.h"
#include "speculation/law.h"

namespace nacre::speculation {
namespace {

constexpr int kMaxChosenWindow = 16;  // for sd and pearl, chosen by us
constexpr int kMaxAsyncWindow = 32;
constexpr double kMinGateTimeoutNs = 2e6;
constexpr double kUnknownDraftTokenNs = 25e6;
// log2 of the probability of a branch that is still worth its place among the
// nodes of a tree: 1 in 512. (Of the bundled pair, at alpha 0.77 and c = 10, 1
// in 64 loses 6 %, 1 in 4096 1 %.)
constexpr float kLeastBranchScore = -9;

// Twice the expected arrival of the tokens that the gate waits for. The verdict
// goes to the draft, which ends its useless token, and they come back.
int64_t GateTimeoutNs(int gate, const StepCosts& costs) {
  const double token_ns =
      costs.draft_token_ns > 0.0 ? costs.draft_token_ns : kUnknownDraftTokenNs;
  const double expected = 2.0 * costs.hop_ns + (gate + 1) * token_ns;
  return static_cast<int64_t>(std::max(kMinGateTimeoutNs, 2.0 * expected));
}

// What a wait costs beyond the tokens, in target steps. That is the way of a
// verdict to the draft and of its token back. It is also half of the token that
// the draft is in the middle of, about every other time.
double RoundTrip(double cost_ratio, const StepCosts& costs) {
  if (costs.draft_token_ns <= 0.0) return 0.0;
  return (2.0 * costs.hop_ns / costs.draft_token_ns + 0.25) / cost_ratio;
}

// Near their optimum the laws are flat. Every drafted token that is not used
// still costs power, and bandwidth where devices share it. So the smallest
// window within this factor of the best one is taken. In shared steps less is
// asked of it: there the law is somewhat too good.
constexpr double kGoodWindow = 0.99;
constexpr double kGoodSharedWindow = 0.98;

// m* of a session that has the target for itself, or less where it hardly
// matters.
int AloneWindow(double alpha, int max_window, const StepCosts& costs) {
  const auto rate = [&](int window) {
    return ExpectedCommitted(alpha, window) / costs.StepTime(window + 1);
  };
  const int best = BestWindow(
      alpha, max_window, [&costs](int rows) { return costs.StepTime(rows); });
  int window = 0;
  while (rate(window) < kGoodWindow * rate(best)) ++window;
  return window;
}

double TimeOf(const StepTimeCurve* curve, int rows) {
  return curve == nullptr || curve->empty() ? 1.0 : curve->At(rows);
}

constexpr double kAlphaSteps = 512.0;  // of WindowSearches

// A twelfth or less of the rows is lost: averages of sessions that share a step
// differ by as much.
int CoarseRows(double rows) {
  int unit = 1;
  while (rows >= 16.0 * unit) unit *= 2;
  return unit * static_cast<int>(std::lround(rows / unit));
}

// m* where others share the steps: the best window if all that follow the load
// take the same. What pays for one of them pays for all. (Each weighing its own
// rows against the others' of the moment, all open their windows at once and
// close them again.) No session waits for tokens: the rows and tokens of a step
// are those of pearl.
int SearchSharedWindow(const WindowSearches::Key& key) {
  const double alpha = key.alpha / kAlphaSteps;
  std::array<double, kMaxWindow + 1> rates;
  int best = 0;
  for (int window = 0; window <= key.max_window; ++window) {
    const double rows =
        key.sessions * OverlappedRows(alpha, window) + key.fixed_rows;
    const double tokens =
        key.sessions * OverlappedCommitted(alpha, window) + key.fixed_sessions;
    rates[window] =
        tokens / TimeOf(key.target, static_cast<int>(std::lround(rows)));
    if (rates[window] > rates[best]) best = window;
  }
  // What a window gains for those that take it is less for all.
  const double tokens = key.sessions * OverlappedCommitted(alpha, best);
  const double share = tokens / (tokens + key.fixed_sessions);
  const double good = 1.0 - (1.0 - kGoodSharedWindow) * share;
  int window = 0;
  while (rates[window] < good * rates[best]) ++window;
  return window;
}

int SharedWindow(double alpha, int max_window, const StepCosts& costs,
                 WindowSearches* searches) {
  WindowSearches::Key key;
  key.target = costs.target;
  key.alpha = static_cast<int>(std::lround(kAlphaSteps * ClampAlpha(alpha)));
  key.max_window = std::min(max_window, kMaxWindow);
  key.sessions = 1 + costs.other_async_sessions;
  key.fixed_sessions =
      std::max(0, costs.other_sessions - costs.other_async_sessions);
  // Rows of those whose window is fixed; each commits at least one token.
  if (key.fixed_sessions > 0) {
    key.fixed_rows = CoarseRows(std::max<double>(
        key.fixed_sessions,
        costs.other_rows - costs.other_async_sessions * costs.own_rows));
  }
  return searches != nullptr ? searches->Find(key) : SearchSharedWindow(key);
}

// The leads of async: how far the draft may be when a verdict comes to it. A
// verdict that finds it in the middle of a token makes this one a waste if it
// is a mismatch. Then the token holds up the next. Where that is likelier than
// the token is useful, the draft stops before it: it then drafts whole tokens
// between two verdicts. Else, and where it would abandon the token, nothing but
// the window bounds it.
DraftPlan AsyncLeads(double alpha, const Gates& gates, int window,
                     double cost_ratio, const StepCosts& costs) {
  const double round_trip = costs.draft_token_ns > 0.0
                                ? 2.0 * costs.hop_ns / costs.draft_token_ns
                                : 0.0;
  // Whole tokens in the time between two verdicts, of `tokens`; none where the
  // rest of one is worth drafting.
  const auto whole = [alpha, &costs](double tokens, int compared) {
    tokens = std::min(tokens, static_cast<double>(kMaxLead));
    const double whole = std::floor(tokens);
    const bool streams =
        costs.abandons_steps ||
        tokens - whole > 1.0 - std::pow(ClampAlpha(alpha), compared);
    return streams ? absl::nullopt
                   : absl::optional<int>(static_cast<int>(whole));
  };
  // In flow a step starts before the verdict of the last one has reached the
  // draft. Its tail is what was sent until a round trip before that. Hence
  // `rate` tokens of each step's commit and the next tail after them. And what
  // is drafted in the round trip beyond the time that the draft has to spare.
  const auto flow = [&](int rate) {
    const double spare = std::max(0.0, cost_ratio - rate);
    const double late = std::max(0.0, round_trip - spare);
    return 2 * rate - 1 +
           static_cast<int>(std::ceil(std::min<double>(late, kMaxLead)));
  };
  DraftPlan leads;
  leads.lead_in_flow = flow(window + 1);
  leads.lead_after_mismatch = leads.lead_in_flow;
  const int compared = std::clamp(static_cast<int>(cost_ratio), 1, window + 1);
  if (const auto rate = whole(cost_ratio, compared)) {
    leads.lead_in_flow =
        flow(std::clamp(std::max(*rate, gates.in_flow + 1), 1, window + 1));
  }
  // After a mismatch the step starts at once, or when the gate's tokens are
  // there, a round trip later than the verdict.
  if (const auto first =
          whole(cost_ratio + (gates.after_mismatch > 0 ? round_trip : 0.0),
                gates.after_mismatch + 1)) {
    leads.lead_after_mismatch =
        std::clamp(gates.after_mismatch + *first, 1,
                   std::max(leads.lead_after_mismatch, 1));
  }
  // Wide windows and long round trips ask for more than a draft may do.
  leads.lead_in_flow = std::min(leads.lead_in_flow, kMaxLead);
  leads.lead_after_mismatch = std::min(leads.lead_after_mismatch, kMaxLead);
  return leads;
}

}  // namespace

double StepCosts::StepTime(int rows) const { return TimeOf(target, rows); }

int WindowSearches::Find(const Key& key) {
  const auto [it, is_new] = windows_.try_emplace(key);
  if (is_new) it->second = SearchSharedWindow(key);
  return it->second;
}

double StepCosts::CostRatio() const {
  if (target == nullptr || target->empty() || draft_token_ns <= 0.0) return 5.0;
  return std::clamp(StepTime(1 + other_rows) / draft_token_ns, 0.01, 1000.0);
}

namespace {

// Whether others keep the target busy.
bool IsShared(const StepCosts& costs) {
  return costs.other_sessions > 0 && costs.other_rows > 0;
}

// Of a draft that is of no use even to a session that has the target for
// itself. It saves less than one step in twenty. Its steps slow the target down
// where the two share a memory, which no law here counts.
constexpr double kUselessAlpha = 0.05;

bool IsUseless(const PlanInputs& inputs) {
  if (!inputs.pair_alpha.has_value()) return false;
  const double pair_alpha =
      inputs.latest_pair_alpha.value_or(*inputs.pair_alpha);
  return std::max(inputs.alpha, pair_alpha) < kUselessAlpha;
}

// m*. Absent where no window pays, neither for this session nor for most
// sessions of the pair: the draft rests. Else it always gives a token, so that
// acceptance is still measured: a bad stretch must not end drafting.
absl::optional<int> LoadWindow(const PlanInputs& inputs, int max_window,
                               WindowSearches* searches) {
  const StepCosts& costs = inputs.costs;
  if (IsUseless(inputs)) return absl::nullopt;
  if (!IsShared(costs)) return AloneWindow(inputs.alpha, max_window, costs);
  const int window = SharedWindow(inputs.alpha, max_window, costs, searches);
  if (window == 0 && inputs.pair_alpha.has_value() &&
      SharedWindow(*inputs.pair_alpha, max_window, costs, searches) == 0) {
    return absl::nullopt;
  }
  return window;
}

// A target that others keep busy saves nothing by waiting: a session that waits
// misses the step.
Gates AsyncGates(double alpha, int window, const StepCosts& costs) {
  if (IsShared(costs)) return {};
  const double ratio = costs.CostRatio();
  return BestGates({alpha, ratio, window, RoundTrip(ratio, costs)});
}

// Of a step that expands at most `rows` nodes of the session.
double DraftStepNs(const StepCosts& costs, int rows) {
  double ns = costs.draft_token_ns;
  for (size_t i = 0; i < kNumRowChoices; ++i) {
    ns = std::max(ns, costs.draft_rows_ns[i]);
    if (kDraftRowChoices[i] >= rows) break;
  }
  return ns;
}

// How many nodes a step of the draft expands: 1 unless more gain clearly, since
// the law is known less well and rows cost power.
int BestDraftRows(const PlanInputs& inputs, int window) {
  constexpr double kClearGain = 1.03;
  const int most =
      std::max(1, inputs.draft_rows / (1 + inputs.costs.other_sessions));
  if (most == 1) return 1;
  int best = 1;
  double best_speedup = 0.0;
  for (const int choice : kDraftRowChoices) {
    const int rows = std::min(choice, most);
    StepCosts costs = inputs.costs;
    costs.draft_token_ns = DraftStepNs(costs, rows);
    const double ratio = costs.CostRatio();
    const Gates gates = AsyncGates(inputs.alpha, window, costs);
    const double speedup = BranchSpeedup(
        inputs.alpha, ratio, CaughtByBranches(rows - 1, inputs.next_three),
        gates.after_mismatch, RoundTrip(ratio, costs));
    if (speedup > (best == 1 ? kClearGain : 1.0) * best_speedup) {
      best = rows;
      best_speedup = speedup;
    }
    if (rows == most) break;
  }
  return best;
}

// How many nodes a step of the draft expands, of a tree that a request of sd or
// pearl named or of a shape of others.
int NamedTreeRows(const PlanInputs& inputs) {
  switch (inputs.tree.shape) {
    case TreeShape::kChain:
    case TreeShape::kCape:
      return 1;
    case TreeShape::kBest:
      return std::max(1, inputs.draft_rows / (1 + inputs.costs.other_sessions));
    case TreeShape::kEagle2:
      return std::min(inputs.draft_rows, inputs.tree.width);
    case TreeShape::kStatic:
      return inputs.draft_rows;
  }
  return 1;
}

// The costs where such a step takes as long as all its rows do.
StepCosts WithRows(const StepCosts& costs, int rows) {
  StepCosts with = costs;
  if (rows > 1) with.draft_token_ns = DraftStepNs(costs, rows);
  return with;
}

// A shape of others, which asks for no price.
void SetShape(const PlanInputs& inputs, PipelinePlan* plan) {
  const TreeSpec& tree = inputs.tree;
  plan->draft.tree = tree;
  plan->draft.rows = NamedTreeRows(inputs);
  if (tree.shape == TreeShape::kEagle2) {
    plan->target.tree_rows = std::min(plan->target.tree_rows, tree.total);
  }
  plan->target.takes_all = true;
  const int depth = ShapeDepth(tree);
  // After a token that is not the likeliest a list may be complete. No tail
  // comes then, and a target that waited for one would wait in vain.
  const int flow = LikeliestDepth(tree);
  for (int* lead :
       {&plan->draft.lead_after_mismatch, &plan->draft.lead_in_flow}) {
    *lead = std::min(*lead, depth);
  }
  for (int* gate :
       {&plan->target.gate_after_mismatch, &plan->target.gate_in_flow}) {
    *gate = std::min(*gate, flow);
  }
}

// A tree that a request of sd or pearl named.
void SetNamedTree(const PlanInputs& inputs, PipelinePlan* plan) {
  if (inputs.draft_rows <= 1 || inputs.tree.shape == TreeShape::kChain) return;
  plan->target.tree_rows = inputs.tree_rows;
  if (inputs.tree.ranks_by_q()) {
    SetShape(inputs, plan);
    return;
  }
  plan->draft.rows = NamedTreeRows(inputs);
  plan->draft.least_score = kLeastBranchScore;
}

// The window of sd or pearl, bounded where it follows the load. `extra`: tail
// tokens that its steps have less.
absl::optional<int> Bounded(const PlanInputs& inputs, int window, int extra,
                            WindowSearches* searches) {
  if (!inputs.follows_load) return window;
  const absl::optional<int> most =
      LoadWindow(inputs, kMaxAsyncWindow, searches);
  if (!most.has_value()) return absl::nullopt;
  return std::clamp(*most + extra, 1, window);
}

// Of pearl.
void Ablate(Ablation ablation, PipelinePlan* plan) {
  const int chunk = plan->window;
  switch (ablation) {
    case Ablation::kNone:
      break;
    case Ablation::kNoPreVerify:
      // One chunk to be verified and one drafted meanwhile.
      plan->draft = {2 * chunk, 2 * chunk};
      plan->target.gate_after_mismatch = chunk;
      plan->target.window = chunk;
      break;
    case Ablation::kNoPostVerify:
      // Beside the rest of the chunk it makes one more token at most, which the
      // target's own is then compared with. That saves no step.
      plan->draft = {chunk, chunk};
      plan->target.ends_chunks = true;
      break;
  }
}

}  // namespace

PipelinePlan MakePlan(const PlanInputs& inputs, WindowSearches* searches) {
  // Of sd and pearl.
  const double cost_ratio =
      WithRows(inputs.costs, inputs.draft_rows > 1 ? NamedTreeRows(inputs) : 1)
          .CostRatio();
  PipelinePlan plan;
  if (inputs.method != Method::kAr && inputs.tree.ranks_by_q() &&
      inputs.draft_rows > 1) {
    plan.draft.tree = inputs.tree;  // also where the draft rests
  }
  switch (inputs.method) {
    case Method::kAr:
      return plan;
    case Method::kSd: {
      const absl::optional<int> window = Bounded(
          inputs,
          inputs.window.has_value() ? *inputs.window
          : inputs.policy_length.has_value()
              ? *inputs.policy_length
              : BestSdWindow(inputs.alpha, cost_ratio, kMaxChosenWindow),
          /*extra=*/0, searches);
      if (!window.has_value()) break;
      plan.window = *window;
      plan.draft = {*window, *window, /*waits_at_stop=*/true};
      plan.target = {*window, *window, *window, 0};
      SetNamedTree(inputs, &plan);
      break;
    }
    case Method::kPearl: {
      const absl::optional<int> window = Bounded(
          inputs,
          inputs.window.value_or(PearlWindow(cost_ratio, kMaxChosenWindow)),
          /*extra=*/1, searches);
      if (!window.has_value()) break;
      plan.window = *window;
      plan.draft = {*window, 2 * *window - 1};
      plan.target = {0, *window - 1, *window - 1, 0};
      plan.target.holds_last_row = inputs.verification == Verification::kRatio;
      Ablate(inputs.ablation, &plan);
      SetNamedTree(inputs, &plan);
      break;
    }
    case Method::kAsync: {
      const absl::optional<int> window =
          LoadWindow(inputs, inputs.window.value_or(kMaxAsyncWindow), searches);
      if (!window.has_value()) break;
      plan.window = *window;
      const int rows = BestDraftRows(inputs, *window);
      StepCosts costs = inputs.costs;
      costs.draft_token_ns = DraftStepNs(costs, rows);
      const double ratio = costs.CostRatio();
      const Gates gates = AsyncGates(inputs.alpha, *window, costs);
      plan.draft = AsyncLeads(inputs.alpha, gates, *window, ratio, costs);
      plan.draft.rows = rows;
      if (rows > 1) plan.draft.least_score = kLeastBranchScore;
      plan.target = {gates.after_mismatch, gates.in_flow, *window, 0};
      // How many pay depends on their probabilities, which the target knows.
      if (inputs.draft_rows > 1) {
        plan.target.tree_rows =
            std::min(inputs.tree_rows, inputs.window.value_or(kMaxWindow));
        if (inputs.tree.ranks_by_q()) SetShape(inputs, &plan);
      }
      break;
    }
  }
  plan.target.gate_timeout_ns = GateTimeoutNs(
      std::max(plan.target.gate_after_mismatch, plan.target.gate_in_flow),
      WithRows(inputs.costs, plan.draft.rows));
  return plan;
}

}  // namespace nacre::speculation
