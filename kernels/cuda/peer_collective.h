// One rank's of the collectives that kernels/peer_collectives.h makes.

#ifndef KERNELS_CUDA_PEER_COLLECTIVE_H_
#define KERNELS_CUDA_PEER_COLLECTIVE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/collective.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/peer_group.h"
#include "kernels/cuda/peer_sums.h"

namespace nacre::kernels::cuda {

class PeerCollective : public Collective {
 public:
  // `others` is the same rank, by which larger calls go; all ranks have one.
  // `backend`, the rank's, outlives it.
  PeerCollective(std::shared_ptr<PeerGroup> group, int rank,
                 CudaMemory* backend, std::unique_ptr<Collective> others)
      : group_(std::move(group)),
        rank_(rank),
        backend_(backend),
        others_(std::move(others)) {}
  // Ends all ranks, as if this one had failed, and waits for its device: the
  // memory of the group may go then.
  ~PeerCollective() override;

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }
  std::string description() const override {
    return "sums of few rows by peers, others in host memory";
  }
  absl::Status AllReduce(const float* part, size_t count, float* sum) override;
  absl::Status Broadcast(float* values, size_t count) override;
  absl::Status Gather(const float* part, int rows, int cols,
                      float* whole) override;
  absl::Status Outcome() override;
  void Abort(const absl::Status& reason) override;

 private:
  using Call = absl::FunctionRef<cudaError_t(const Queue&, const Peers&)>;
  absl::Status Enqueue(Call call);

  const std::shared_ptr<PeerGroup> group_;
  const int rank_;
  CudaMemory* const backend_;
  const std::unique_ptr<Collective> others_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PEER_COLLECTIVE_H_
