// A Collective whose ranks are threads of one process: they read each other's
// memory. An all-reduce cuts the values into a piece for each rank, which sums
// it and writes it to all.
//
// Each Collective is one rank's; the group that they share ends with the last.

#ifndef KERNELS_SHARED_MEMORY_COLLECTIVE_H_
#define KERNELS_SHARED_MEMORY_COLLECTIVE_H_

#include <memory>
#include <vector>

#include "kernels/collective.h"

namespace nacre::kernels {

// By rank. `ranks` is a power of two, at most kMostRanks; fatal else. A rank
// whose Collective is destroyed while others wait has failed: ABORTED.
inline constexpr int kMostRanks = 8;
std::vector<std::unique_ptr<Collective>> MakeSharedMemoryCollectives(int ranks);

}  // namespace nacre::kernels

#endif  // KERNELS_SHARED_MEMORY_COLLECTIVE_H_
