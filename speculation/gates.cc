#include "speculation/gates.h"

#include <algorithm>
#include <cmath>

#include "speculation/law.h"

namespace nacre::speculation {
namespace {

constexpr int kMaxGate = 24;
constexpr double kGoodGate = 1.005;  // what a gate must gain
constexpr double kUnlikely = 1e-3;   // steps that hardly anyone gets to
constexpr int kMaxSteps = 64;

}  // namespace

double GatedSpeedup(const GateInputs& inputs, const Gates& gates) {
  const double alpha = ClampAlpha(inputs.alpha);
  const double token = 1.0 / inputs.cost_ratio;  // T_draft
  // Times since the verdict, in T_target; tokens since the mismatch.
  const auto arrival = [&](int count) {
    return count > 0 ? inputs.round_trip + count * token : 0.0;
  };
  const auto arrived = [&](double time) {
    // Rounding must not lose the token that a step waited for.
    const double count = (time - inputs.round_trip) / token + 1e-9;
    return static_cast<int>(std::clamp(count, 0.0, 1e6));
  };
  double reached = 1.0;  // the probability of this step
  double tokens = 0.0;
  double steps = 0.0;
  double free = 0.0;  // when the target could step
  int committed = 0;
  for (int step = 0; step < kMaxSteps && reached > kUnlikely; ++step) {
    const int gate = std::min(step == 0 ? gates.after_mismatch : gates.in_flow,
                              inputs.window);
    const double start =
        std::max(free, gate > 0 ? arrival(committed + gate) : 0.0);
    const int rows = std::clamp(arrived(start) - committed, 0, inputs.window);
    const double matched = std::pow(alpha, rows + 1);
    tokens += reached * (1.0 - matched) / (1.0 - alpha);
    steps += reached * (start + 1.0 - free);
    reached *= matched;
    committed += rows + 1;
    free = start + 1.0;
  }
  return tokens / steps;
}

Gates BestGates(const GateInputs& inputs) {
  const int most = std::min(inputs.window, kMaxGate);
  Gates best;
  double best_speedup = GatedSpeedup(inputs, best);
  const double ungated = best_speedup;
  const auto consider = [&](const Gates& gates) {
    const double speedup = GatedSpeedup(inputs, gates);
    if (speedup <= best_speedup) return;
    best = gates;
    best_speedup = speedup;
  };
  // From each axis along the other and back: as good as trying all pairs, but
  // for a percent at worst.
  for (int gate = 0; gate <= most; ++gate) consider({gate, 0});
  const int after = best.after_mismatch;
  for (int gate = 0; gate <= most; ++gate) {
    consider({0, gate});
    consider({after, gate});
    consider({gate, gate});
  }
  const int flow = best.in_flow;
  for (int gate = 0; gate <= most; ++gate) consider({gate, flow});
  if (best_speedup < kGoodGate * ungated) return Gates();
  const Gates simpler = {best.after_mismatch, 0};
  const bool flow_matters =
      best_speedup >= kGoodGate * GatedSpeedup(inputs, simpler);
  return flow_matters ? best : simpler;
}

}  // namespace nacre::speculation
