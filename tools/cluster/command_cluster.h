// A cluster that one command starts for itself.

#ifndef TOOLS_CLUSTER_COMMAND_CLUSTER_H_
#define TOOLS_CLUSTER_COMMAND_CLUSTER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/cluster/cluster.h"
#include "tools/terminal.h"

namespace nacre::tools {

// The processes' logs go to `log_dir`, which outlives it, as the terminal does;
// one that fails while starting is quoted in the error. Errors: Cluster::Start,
// CANCELLED after Ctrl-C.
absl::StatusOr<std::unique_ptr<Cluster>> StartCommandCluster(
    Cluster::Options options, const std::string& log_dir,
    const Terminal& terminal);

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_COMMAND_CLUSTER_H_
