// What a client sees of time: first token and the pace of the others. Pure.

#ifndef TOOLS_BENCH_LATENCY_H_
#define TOOLS_BENCH_LATENCY_H_

#include <vector>

namespace nacre::tools {

// Arrival of a piece of an answer: seconds after the request, its tokens.
struct Arrival {
  double seconds = 0.0;
  int tokens = 0;
};

// Inter-token latencies of one answer, seconds, one for each token after the
// first piece. A step may commit several tokens that arrive together: the time
// since the piece before is shared among them, as a reader sees the pace.
std::vector<double> InterTokenLatencies(const std::vector<Arrival>& arrivals);

// The value that a share `p` in [0, 1] of the values does not exceed, between
// two values their weighted mean; 0 for none.
double Percentile(std::vector<double> values, double p);

struct Percentiles {
  double p50 = 0.0;
  double p95 = 0.0;
  double p99 = 0.0;
};
Percentiles PercentilesOf(const std::vector<double>& values);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_LATENCY_H_
