// What `nacre simulate` prints and writes.

#ifndef TOOLS_SIMULATE_SIMULATE_REPORT_H_
#define TOOLS_SIMULATE_SIMULATE_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json.h"
#include "simulation/fleet.h"
#include "tools/simulate/simulate_flags.h"

namespace nacre::tools {

struct SimulatedRow {
  SimulatedMethod method;
  simulation::FleetResult result;
  double speedup = 0.0;  // over `ar` in the same fleet
  // What the closed law predicts; unset where it does not apply
  // (simulation/closed_law.h).
  std::optional<double> law_speedup;
  // speedup / law_speedup - 1; unset likewise.
  std::optional<double> law_difference;
};

// Simulates `ar` and then each method. UNAVAILABLE: requests were left when the
// last target had died for good.
absl::StatusOr<std::vector<SimulatedRow>> Simulate(const SimulatePlan& plan);

// The table for people, with its headings, lines ended.
std::string SimulatedTable(const SimulatePlan& plan,
                           const std::vector<SimulatedRow>& rows);

// All of --json.
nlohmann::ordered_json SimulatedJson(const SimulatePlan& plan,
                                     const std::vector<SimulatedRow>& rows);

}  // namespace nacre::tools

#endif  // TOOLS_SIMULATE_SIMULATE_REPORT_H_
