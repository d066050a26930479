#include "tools/bench/latency.h"

#include <algorithm>
#include <cmath>

namespace nacre::tools {

std::vector<double> InterTokenLatencies(const std::vector<Arrival>& arrivals) {
  std::vector<double> latencies;
  const Arrival* previous = nullptr;
  for (const Arrival& arrival : arrivals) {
    if (arrival.tokens == 0) continue;
    if (previous != nullptr) {
      latencies.insert(latencies.end(), static_cast<size_t>(arrival.tokens),
                       (arrival.seconds - previous->seconds) / arrival.tokens);
    }
    previous = &arrival;
  }
  return latencies;
}

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double rank = p * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double weight = rank - std::floor(rank);
  return values[below] + weight * (values[above] - values[below]);
}

Percentiles PercentilesOf(const std::vector<double>& values) {
  return {Percentile(values, 0.5), Percentile(values, 0.95),
          Percentile(values, 0.99)};
}

}  // namespace nacre::tools
