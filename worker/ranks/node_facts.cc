#include "worker/ranks/node_facts.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/quoted.h"

namespace nacre::worker {

absl::Status CheckSameFacts(int node, const NodeFacts& facts,
                            const NodeFacts& leader) {
  for (size_t i = 0; i < leader.size(); ++i) {
    const auto& [name, value] = leader[i];
    if (i < facts.size() && facts[i] == leader[i]) continue;
    const std::string other = i < facts.size() && facts[i].first == name
                                  ? Quoted(facts[i].second)
                                  : "not said";
    return absl::FailedPreconditionError(
        absl::StrCat(name, " of node ", node, " is ", other,
                     ", of the leader \"", value, "\""));
  }
  return absl::OkStatus();
}

}  // namespace nacre::worker
