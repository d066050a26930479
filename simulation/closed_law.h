// The closed laws (speculation/law.h) beside a simulation, and only where they
// apply. Pure functions.

#ifndef SIMULATION_CLOSED_LAW_H_
#define SIMULATION_CLOSED_LAW_H_

#include "absl/types/optional.h"
#include "simulation/fleet.h"
#include "speculation/pipeline.h"

namespace nacre::simulation {

// T_target / T_draft of single rows.
double CostRatio(const FleetOptions& options);

// What the law predicts as the speed-up over `ar`, for the window given or else
// the best one. nullopt where something that it assumes is not so. All laws
// assume independent matches with an alpha in [0.01, 0.99] and one stream of
// long answers (1,000 tokens) without a prompt to prefill. Step times are flat,
// links have no delay, and workers live. Besides:
// - sd: a window <= 48.
// - pearl: a window <= c. Beyond it the target does not keep step.
// - async: a whole c in 1..32, no window given and no branches. Else a mismatch
//   finds the draft in the middle of a token, or the window is too small.
// Ablations have no law.
absl::optional<double> ClosedLaw(const FleetOptions& options);

// The plan that the law assumes: made once, from the true alpha and cost ratio.
// For sd, pearl and async, whether or not the law applies.
speculation::PipelinePlan LawPlan(const FleetOptions& options);

}  // namespace nacre::simulation

#endif  // SIMULATION_CLOSED_LAW_H_
