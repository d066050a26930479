// The lists among the flags of `nacre simulate`.

#ifndef TOOLS_SIMULATE_SIMULATE_LISTS_H_
#define TOOLS_SIMULATE_SIMULATE_LISTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "simulation/fleet.h"
#include "speculation/ranks.h"

namespace nacre::tools {

struct SimulatedMethod {
  std::string name;  // as typed: "sd:4"
  simulation::FleetMethod method;
};

// "ar,sd:4,pearl,async": as ParseBenchMethods, and the ablations
// pearl-no-pre-verify and pearl-no-post-verify.
absl::StatusOr<std::vector<SimulatedMethod>> ParseSimulatedMethods(
    absl::string_view text, std::optional<int> default_window);

// "draft@2.5+1,target:0/60+5": WHO WHEN [+BACK] each. WHO: draft, target or
// hung-draft (stays connected and does nothing), with :N only that one, from 0.
// WHEN: @S once at S seconds, /S every S seconds on average. BACK: returns so
// many seconds later; never without it, which /S does not allow.
// INVALID_ARGUMENT: another form, a worker that is not there, seconds not in
// 0..1000000 (/S and BACK: > 0).
absl::StatusOr<std::vector<simulation::Failure>> ParseFailures(
    absl::string_view text, int drafts, int targets);

// "0.43,0.17,0.09": of mismatches, the shares of ranks 2, 3, ...; what is left
// has none. INVALID_ARGUMENT: one that is not in 0..1, more of them than there
// are ranks, a sum over 1.
absl::StatusOr<speculation::MismatchShares> ParseRankShares(
    absl::string_view text);

}  // namespace nacre::tools

#endif  // TOOLS_SIMULATE_SIMULATE_LISTS_H_
