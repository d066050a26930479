// Of builds without CUDA (kernels/CMakeLists.txt).

#include "kernels/peer_collectives.h"

namespace nacre::kernels {

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakePeerCollectives(
    const std::vector<int>&, absl::Span<const std::unique_ptr<Collective>>,
    absl::Span<const std::unique_ptr<Backend>>, const PeerOptions&) {
  return absl::FailedPreconditionError(
      "this build has no GPUs: CUDA's compiler was not found");
}

}  // namespace nacre::kernels
