// A Collective of ranks that compute on devices: values are brought to the
// host, where the threads of the ranks exchange them, and back to the devices.
// Works with any devices, also of two ranks on one; each call waits for the
// device.
//
// A device that fails, and a host without room, end all ranks, and the reason
// names the rank. Thread-compatible, as the device.

#ifndef KERNELS_STAGED_COLLECTIVE_H_
#define KERNELS_STAGED_COLLECTIVE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collective.h"
#include "kernels/memory_ops.h"

namespace nacre::kernels {

// What all ranks return when this one has failed. What names a rank already
// stays as it is.
absl::Status FailureOfRank(int rank, const absl::Status& status);

class StagedCollective : public Collective {
 public:
  // `host`, of this rank's thread, and `device` outlive it.
  StagedCollective(Collective* host, MemoryOps* device)
      : host_(host), device_(device) {}

  int rank() const override { return host_->rank(); }
  int ranks() const override { return host_->ranks(); }
  std::string description() const override { return "sums in host memory"; }
  absl::Status AllReduce(const float* part, size_t count, float* sum) override;
  absl::Status Broadcast(float* values, size_t count) override;
  absl::Status Gather(const float* part, int rows, int cols,
                      float* whole) override;
  absl::Status Outcome() override { return host_->Outcome(); }
  void Abort(const absl::Status& reason) override { host_->Abort(reason); }

 private:
  // `status`, and the end of all ranks unless it is OK.
  absl::Status Checked(const absl::Status& status);
  // Memory of the host for so many values; its old ones are lost.
  absl::StatusOr<float*> Reserve(size_t count, std::unique_ptr<Buffer>* buffer);
  // What the device holds at `values`, in part_.
  absl::StatusOr<const float*> Bring(const float* values, size_t count);

  Collective* const host_;
  MemoryOps* const device_;
  absl::Status failure_;  // for good: others may still be at our memory
  std::unique_ptr<Buffer> part_;
  std::unique_ptr<Buffer> result_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_STAGED_COLLECTIVE_H_
