// What ranks on devices meet by: NCCL where each has a device of its own and
// the machine has the library, else memory of the host.

#ifndef KERNELS_DEVICE_COLLECTIVES_H_
#define KERNELS_DEVICE_COLLECTIVES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/collective.h"
#include "kernels/nccl_collective.h"

namespace nacre::kernels {

// INVALID_ARGUMENT unless it is a value of BackendOptions::rank_transport.
absl::Status CheckRankTransport(absl::string_view name);

struct DeviceCollectives {
  std::vector<std::unique_ptr<Collective>> of_ranks;
  std::string why_host;  // for logs; empty: it is NCCL
};

// For the ranks of a model that are threads of this process: by rank. `options`
// are those that the backends were made with, with a device for each. `hosts`
// and `backends` outlive what is returned. Where NCCL is asked for,
// FAILED_PRECONDITION or INVALID_ARGUMENT with what it lacks, UNIMPLEMENTED for
// ranks that other processes have, too, or the error that it begins with;
// "auto" takes memory of the host then.
absl::StatusOr<DeviceCollectives> MakeDeviceCollectives(
    const BackendOptions& options,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends,
    size_t most_scratch = NcclCollective::kMostScratch);

}  // namespace nacre::kernels

#endif  // KERNELS_DEVICE_COLLECTIVES_H_
