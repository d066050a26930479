#include "simulation/ablation.h"

namespace nacre::simulation {

using speculation::PipelinePlan;
using speculation::Verdict;

PipelinePlan Ablate(Ablation ablation, const PipelinePlan& plan,
                    const Verdict* last) {
  PipelinePlan ablated = plan;
  const int chunk = plan.window;
  switch (ablation) {
    case Ablation::kNone:
      break;
    case Ablation::kNoPreVerify:
      // One chunk to be verified and one drafted meanwhile.
      ablated.draft = {2 * chunk, 2 * chunk};
      ablated.target.gate_after_mismatch = chunk;
      ablated.target.window = chunk;
      break;
    case Ablation::kNoPostVerify: {
      // A step without a tail has pre-verified: the rest of the chunk is next,
      // and the draft makes no more than it. Behind it a new chunk begins as it
      // does after a mismatch.
      const bool rest = last != nullptr && last->window == 0;
      ablated.draft = {chunk, rest ? chunk - 1 : chunk};
      ablated.target.gate_in_flow = rest ? chunk - 1 : 0;
      break;
    }
  }
  return ablated;
}

}  // namespace nacre::simulation
