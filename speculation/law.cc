#include "speculation/law.h"

#include <algorithm>
#include <cmath>

namespace nacre::speculation {

double ClampAlpha(double alpha) {
  // Written so that NaN becomes the lower bound.
  return alpha > 0.01 ? std::min(alpha, 0.99) : 0.01;
}

double ExpectedCommitted(double alpha, int window) {
  const double a = ClampAlpha(alpha);
  return (1.0 - std::pow(a, window + 1)) / (1.0 - a);
}

double SdSpeedup(double alpha, double cost_ratio, int window) {
  return ExpectedCommitted(alpha, window) / (window / cost_ratio + 1.0);
}

double PearlSpeedup(double alpha, double cost_ratio, int window) {
  const double a = ClampAlpha(alpha);
  const double chunk = 1.0 - std::pow(a, window);
  const double steps = chunk / ((1.0 - a) * (1.0 + a - std::pow(a, window)));
  return steps / std::max(1.0, window / cost_ratio);
}

double OverlappedCommitted(double alpha, int window) {
  // As pearl commits whose chunks are never late.
  return PearlSpeedup(alpha, window + 1.0, window + 1);
}

double OverlappedRows(double alpha, int window) {
  const double a = ClampAlpha(alpha);
  // After a mismatch one step without a tail, then, if its token is the
  // draft's, steps in flow until the next mismatch.
  const double flow_steps = a / (1.0 - std::pow(a, window + 1));
  return 1.0 + window * flow_steps / (1.0 + flow_steps);
}

namespace {

// Target steps from one mismatch to the next: the first step, what it waits
// for, and the steps in flow.
double MissCycle(double a, double cost_ratio, int gate, double round_trip) {
  const double flow_failure = 1.0 - std::pow(a, std::max(1.0, cost_ratio));
  if (gate > 0) {
    return 1.0 + round_trip + gate / cost_ratio +
           std::pow(a, gate + 1) / flow_failure;
  }
  // The first step hides the round trip; the second finds fewer tokens.
  const double first_tokens =
      std::max(1.0, cost_ratio * std::max(0.0, 1.0 - round_trip));
  return 1.0 + a * (1.0 + std::pow(a, first_tokens) / flow_failure);
}

}  // namespace

double AsyncSpeedup(double alpha, double cost_ratio, int gate,
                    double round_trip) {
  const double a = ClampAlpha(alpha);
  return 1.0 / ((1.0 - a) * MissCycle(a, cost_ratio, gate, round_trip));
}

double BranchSpeedup(double alpha, double cost_ratio, double caught, int gate,
                     double round_trip) {
  const double a = ClampAlpha(alpha);
  const double c = std::max(1.0, cost_ratio);
  const double hit = 1.0 + std::pow(a, c + 1.0) / (1.0 - std::pow(a, c));
  const double miss = MissCycle(a, cost_ratio, gate, round_trip);
  return 1.0 / ((1.0 - a) * (caught * hit + (1.0 - caught) * miss));
}

double CaughtByBranches(int branches, double next) {
  constexpr double kNextOfTheirs = 0.69;
  if (branches < 1) return 0.0;
  const double theirs = 1.0 - 0.75 / std::sqrt(branches);
  return std::clamp(theirs * next / kNextOfTheirs, 0.0, 0.95);
}

int BestSdWindow(double alpha, double cost_ratio, int max_window) {
  int best = 1;
  for (int window = 2; window <= max_window; ++window) {
    if (SdSpeedup(alpha, cost_ratio, window) >
        SdSpeedup(alpha, cost_ratio, best)) {
      best = window;
    }
  }
  return best;
}

int PearlWindow(double cost_ratio, int max_window) {
  return std::clamp(static_cast<int>(std::lround(std::min(cost_ratio, 1e6))), 1,
                    max_window);
}

int BestGate(double alpha, double cost_ratio, int max_gate, double round_trip) {
  const double a = ClampAlpha(alpha);
  const double flow_failure = 1.0 - std::pow(a, std::max(1.0, cost_ratio));
  const double stationary =
      std::log(flow_failure / (-cost_ratio * std::log(a))) / std::log(a) - 1.0;
  // Beyond 0 the speed-up has one maximum: it is beside the stationary point.
  const int below =
      static_cast<int>(std::min<double>(std::max(stationary, 0.0), max_gate));
  int best = 0;
  for (const int gate : {std::max(below, 1), below + 1}) {
    if (gate <= max_gate && AsyncSpeedup(a, cost_ratio, gate, round_trip) >
                                AsyncSpeedup(a, cost_ratio, best, round_trip)) {
      best = gate;
    }
  }
  return best;
}

int BestWindow(double alpha, int max_window,
               const std::function<double(int rows)>& step_time) {
  int best = 0;
  double best_rate = 0.0;
  for (int window = 0; window <= max_window; ++window) {
    const double rate =
        ExpectedCommitted(alpha, window) / step_time(window + 1);
    if (rate > best_rate) {
      best = window;
      best_rate = rate;
    }
  }
  return best;
}

}  // namespace nacre::speculation
