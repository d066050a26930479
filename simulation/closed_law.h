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
// the best one; nullopt where something that it assumes is not so. All laws
// assume independent matches with an alpha in [0.01, 0.99], one stream whose
// answers are long (1,000 tokens) and have no prompt to prefill, flat step
// times, links without delay and workers that live. Besides, the one of sd a
// window
// <= 48, the one of pearl a window <= c (beyond it the target does not keep
// step with the draft) and the one of async a c that is a whole number in 1..32
// (or a mismatch finds the draft in the middle of a token, or the window is too
// small), no window given and no branches. Ablations have none.
absl::optional<double> ClosedLaw(const FleetOptions& options);

// The plan that the law assumes: made once, from the true alpha and cost ratio.
// For sd, pearl and async, whether or not the law applies.
speculation::PipelinePlan LawPlan(const FleetOptions& options);

}  // namespace nacre::simulation

#endif  // SIMULATION_CLOSED_LAW_H_
