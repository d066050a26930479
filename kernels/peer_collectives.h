// Collectives of ranks that have a GPU each and read each other's memory: sums
// of few rows, and what is sent and gathered of them, are a kernel on each GPU,
// between those of the step (cuda/peer_sums.h). Larger ones go in memory of the
// host.
//
// Calls return when they are queued, or recorded, so results are there after
// the backend's Synchronize, and good if Outcome says so then. A rank that
// waits too long for another one has failed. Then, and when a rank fails in
// another way, the waits of all end, and their devices.
//
// Threads as of Collective.

#ifndef KERNELS_PEER_COLLECTIVES_H_
#define KERNELS_PEER_COLLECTIVES_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/collective.h"

namespace nacre::kernels {

// Rows that a rank gathers of its peers, at most.
inline constexpr int kMostPeerRows = 16;

struct PeerOptions {
  // Most that a kernel waits for its peers.
  std::chrono::milliseconds limit = std::chrono::seconds(60);
};

// Of ranks that are threads of this process, in order, each with a device of
// `devices` and the backend of it. `hosts` are the same ranks among threads of
// the host; they and `backends` outlive what is returned. Also sees whether
// values come as they were given, and so waits for all devices.
//
// INVALID_ARGUMENT: one rank, or a device twice. FAILED_PRECONDITION: a device
// that cannot read another's memory, or reads something else; a build without
// CUDA. Else errors of the devices.
absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakePeerCollectives(
    const std::vector<int>& devices,
    absl::Span<const std::unique_ptr<Collective>> hosts,
    absl::Span<const std::unique_ptr<Backend>> backends,
    const PeerOptions& options = {});

}  // namespace nacre::kernels

#endif  // KERNELS_PEER_COLLECTIVES_H_
