#include "tools/calibrate/workers.h"

#include <utility>

#include "common/status_macros.h"
#include "tools/cluster/command_cluster.h"

namespace nacre::tools {

absl::StatusOr<std::unique_ptr<Workers>> Workers::Start(
    Cluster::Options options, const Terminal& terminal) {
  auto workers = std::unique_ptr<Workers>(new Workers(terminal));
  NACRE_ASSIGN_OR_RETURN(
      workers->cluster_,
      StartCommandCluster(std::move(options), workers->logs_.path(), terminal));
  workers->client_ =
      std::make_unique<GenerationClient>(workers->cluster_->address());
  return workers;
}

}  // namespace nacre::tools
