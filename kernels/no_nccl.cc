// Of builds without NCCL (kernels/CMakeLists.txt).

#include "kernels/nccl_api.h"

namespace nacre::kernels {

absl::StatusOr<std::unique_ptr<NcclCollectiveApi>> OpenNccl(
    const NcclOptions&) {
  return absl::FailedPreconditionError(
      "this build has no NCCL: CUDA's compiler or nccl.h was not found");
}

}  // namespace nacre::kernels
