// What must be the same on all nodes of a model, by name: before anything is
// loaded, and then of what was.
//
// Plain values.

#ifndef WORKER_RANKS_NODE_FACTS_H_
#define WORKER_RANKS_NODE_FACTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace nacre::worker {

using NodeFacts = std::vector<std::pair<std::string, std::string>>;

// FAILED_PRECONDITION: the first that differs, with both values.
absl::Status CheckSameFacts(int node, const NodeFacts& facts,
                            const NodeFacts& leader);

}  // namespace nacre::worker

#endif  // WORKER_RANKS_NODE_FACTS_H_
