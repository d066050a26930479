// Which draft tokens match: decided by position alone, so that every method is
// tried on the same luck. No threads.

#ifndef SIMULATION_MATCH_SOURCE_H_
#define SIMULATION_MATCH_SOURCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "simulation/random.h"

namespace nacre::simulation {

// One recorded sequence: whether the draft token of each position matched.
using MatchTrace = std::vector<bool>;

class MatchSource {
 public:
  virtual ~MatchSource() = default;
  // Whether the draft's token for generated token `index` >= 0 is the target's,
  // all before it being right. The same answer each time.
  virtual bool At(int64_t index) = 0;
};

// Independent with probability alpha. The lengths of the runs of matches are
// drawn by stratified sampling: each is geometric, and of every 1,000 in a row
// one comes from each thousandth of the distribution. So a short simulation has
// an alpha near the one asked for, and little noise. alpha in [0, 1].
std::unique_ptr<MatchSource> IndependentMatches(double alpha, uint64_t seed);

// A recorded one from `first` on; begins again where it ends. Not empty.
std::unique_ptr<MatchSource> RecordedMatches(
    std::shared_ptr<const MatchTrace> trace, size_t first);

}  // namespace nacre::simulation

#endif  // SIMULATION_MATCH_SOURCE_H_
