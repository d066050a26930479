// Plans of PEARL without one of its halves, for comparison only (fleet.h). They
// are gates and leads like every other plan, but those without post-verify
// change from step to step. Pure functions.

#ifndef SIMULATION_ABLATION_H_
#define SIMULATION_ABLATION_H_

#include "speculation/pipeline.h"

namespace nacre::simulation {

enum class Ablation {
  kNone,
  // After a mismatch the target waits for a whole chunk instead of verifying
  // its first token meanwhile. The draft goes on during the verification.
  kNoPreVerify,
  // The first token of a chunk is verified while the chunk is drafted, but the
  // draft waits while the others are verified.
  kNoPostVerify,
};

// What `plan`, of pearl, becomes; `last` is the verdict of the session's latest
// step, null before the first.
speculation::PipelinePlan Ablate(Ablation ablation,
                                 const speculation::PipelinePlan& plan,
                                 const speculation::Verdict* last);

}  // namespace nacre::simulation

#endif  // SIMULATION_ABLATION_H_
