// The memory that ranks with a GPU each meet in, and how they end together.
//
// It comes from pools that the peers have access to. All other memory of the
// devices stays their own: with cudaDeviceEnablePeerAccess peers would see all
// of it, and a rank that frees some could wait for a GPU that waits for it.
//
// Thread-safe, but for what is said to be a rank's.

#ifndef KERNELS_CUDA_PEER_GROUP_H_
#define KERNELS_CUDA_PEER_GROUP_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/peer_sums.h"
#include "kernels/peer_collectives.h"

namespace nacre::kernels::cuda {

class PeerGroup {
 public:
  // As MakePeerCollectives, but that nothing is queued yet. `ranks` are the
  // backends of `devices`.
  static absl::StatusOr<std::shared_ptr<PeerGroup>> Make(
      const std::vector<int>& devices, absl::Span<CudaMemory* const> ranks,
      const PeerOptions& options);
  // No device uses it any more.
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  int ranks() const { return static_cast<int>(members_.size()); }
  const Peers& peers(int rank) const { return members_[Index(rank)].peers; }

  // What a rank has failed with; OK: none has.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all ranks with `reason`, which is not OK; of several the first.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // After a wait for the rank's device: ends all ranks if one of its kernels
  // waited too long. The failure, if any.
  absl::Status Look(int rank) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Member {
    int device = 0;
    cudaMemPool_t pool = nullptr;
    Peers peers;
  };
  // Of the host, which kernels read and write.
  struct HostWords {
    unsigned stop = 0;
    unsigned late[kMostPeers][kMostPeers] = {};  // as Peers::late, of each rank
  };

  explicit PeerGroup(const PeerOptions& options) : options_(options) {}
  static size_t Index(int rank) { return static_cast<size_t>(rank); }
  // On its device, for all others to read.
  absl::Status Allocate(CudaMemory* backend, Member* member);

  const PeerOptions options_;
  std::vector<Member> members_;  // by rank
  std::unique_ptr<Buffer> host_;
  HostWords* words_ = nullptr;  // in host_
  std::atomic<bool> has_failed_ = false;
  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PEER_GROUP_H_
