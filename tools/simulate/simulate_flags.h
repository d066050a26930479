// The flags of `nacre simulate`.

#ifndef TOOLS_SIMULATE_SIMULATE_FLAGS_H_
#define TOOLS_SIMULATE_SIMULATE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flag_set.h"
#include "coordinator/limit_flags.h"
#include "simulation/fleet.h"
#include "tools/simulate/simulate_lists.h"

namespace nacre::tools {

struct SimulatePlan {
  simulation::FleetOptions fleet;  // but for the method
  std::vector<SimulatedMethod> methods;
  bool known_alpha = false;
};

struct SimulateFlags {
  std::string methods = "ar,sd,pearl,async";
  std::optional<double> alpha;
  std::string match_trace;
  std::optional<double> cost_ratio;
  std::optional<double> target_ms;
  std::string step_times;
  std::string draft_step_times;
  std::optional<int> window;
  bool known_alpha = false;
  struct Hops {
    double latency_us = 0.0;
    double jitter_us = 0.0;
    std::optional<double> draft_latency_us;
  } hops;
  int streams = 1;
  int drafts = 1;
  int targets = 1;
  int coordinators = 1;
  int requests = 1;
  int tokens = 10'000;
  int prompt_tokens = 1;
  int step_rows = 512;
  bool abandon_steps = false;
  struct Trees {
    std::string shape = "best";
    int draft_rows = coordinator::LimitFlags().draft_rows;
    int tree_rows = coordinator::LimitFlags().tree_rows;
    std::string ranks;
  } trees;
  std::string failures;
  uint64_t seed = 1;
  std::string json;

  void Register(FlagSet* flags);

  // INVALID_ARGUMENT, with the value and the limit: a flag that is missing, out
  // of range, at odds with another, or of another form. Also a bad trace.
  // NOT_FOUND: the trace cannot be read.
  absl::StatusOr<SimulatePlan> Build() const;

 private:
  absl::Status CheckRanges() const;
  absl::Status FillSteps(simulation::FleetOptions* fleet) const;
  absl::Status FillTrees(simulation::FleetOptions* fleet) const;
};

}  // namespace nacre::tools

#endif  // TOOLS_SIMULATE_SIMULATE_FLAGS_H_
