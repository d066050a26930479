// What ranks on devices meet by: NCCL where each has a device of its own and
// the machine has the library, else memory of the host; or, where they are told
// to, the memory of their GPUs (peer_collectives.h). On several nodes the
// id of the communicator is made by node 0, and goes to the others over their
// link.

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
#include "kernels/nccl_group.h"
#include "kernels/node_link.h"
#include "kernels/peer_collectives.h"

namespace nacre::kernels {

// INVALID_ARGUMENT unless it is a value of BackendOptions::rank_transport.
absl::Status CheckRankTransport(absl::string_view name);

struct DeviceCollectives {
  std::vector<std::unique_ptr<Collective>> of_ranks;
  bool by_nccl = false;
  std::string why_host;  // for logs: why not by NCCL, where it might be
};

struct DeviceCollectiveOptions {
  // Of a model on several nodes, each of which makes its own; null: it is on
  // one. Outlives what is made.
  NodeLink* link = nullptr;
  size_t most_scratch = NcclCollective::kMostScratch;
  NcclGroupOptions nccl;  // but for its nodes
  PeerOptions peers;
};

// For the ranks of a model that are threads of this process: in order.
// `backend` is what the backends were made with, with a device for each.
// `hosts` and `backends` outlive what is returned. Where NCCL is asked for,
// FAILED_PRECONDITION or INVALID_ARGUMENT with what it lacks, or the error that
// it begins with; "auto" takes memory of the host then. It does so, too, where
// the nodes' link is encrypted, as NCCL is not. "peer" is for one node,
// whatever it lacks is an error.
//
// All nodes ask for the same, and get the same. What one of them lacks is the
// error of all, and names it. Also the link's failure.
absl::StatusOr<DeviceCollectives> MakeDeviceCollectives(
    const BackendOptions& backend,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends,
    const DeviceCollectiveOptions& options = {});

}  // namespace nacre::kernels

#endif  // KERNELS_DEVICE_COLLECTIVES_H_
