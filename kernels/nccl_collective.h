// A Collective of ranks that have a GPU each, which stays on the GPUs: NCCL
// moves values from one to another, and a kernel adds them up in the order that
// Collective says. All of it is queued where the rank's backend queues its ops
// (MemoryOps::Stream). The host waits for no device, no device for a host.
//
// Calls return when they are queued, so results are there after the backend's
// Synchronize, and good if Outcome says so then.
//
// Threads as of Collective, and one that watches (nccl_group.h). Thread-
// compatible, as the backend.

#ifndef KERNELS_NCCL_COLLECTIVE_H_
#define KERNELS_NCCL_COLLECTIVE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/collective.h"
#include "kernels/nccl_group.h"

namespace nacre::kernels {

class NcclCollective : public Collective {
 public:
  // Bytes of parts that are gathered at a time, at most.
  static constexpr size_t kMostScratch = size_t{32} << 20;
  // Rows of Gather that are sent at a time.
  static constexpr int kMostRows = 64;

  // Rank `member` of the group, whose device is that of `backend`. `host`, the
  // same rank among threads of the host, is aborted, too; null: none. Both
  // outlive it.
  NcclCollective(std::shared_ptr<NcclGroup> group, size_t member,
                 Backend* backend, Collective* host,
                 size_t most_scratch = kMostScratch)
      : group_(std::move(group)),
        member_(member),
        backend_(backend),
        host_(host),
        most_scratch_(most_scratch) {}
  // Ends all ranks, as if this one had failed.
  ~NcclCollective() override;

  int rank() const override { return group_->rank(member_); }
  int ranks() const override { return group_->ranks(); }
  std::string description() const override { return "sums by NCCL"; }
  absl::Status AllReduce(const float* part, size_t count, float* sum) override;
  absl::Status Broadcast(float* values, size_t count) override;
  absl::Status Gather(const float* part, int rows, int cols,
                      float* whole) override;
  absl::Status Outcome() override { return group_->failure(); }
  void Abort(const absl::Status& reason) override;

 private:
  // Memory for so many values, whose old ones are lost.
  absl::Status Reserve(size_t count);
  absl::Status Queue(NcclGroup::What what, NcclGroup::Call call) {
    return group_->Queue(member_, what, backend_->Stream(), call);
  }
  // Of rows of `part`, at most kMostRows.
  absl::Status SendRows(const float* part, int rows, int cols, float* whole);

  const std::shared_ptr<NcclGroup> group_;
  const size_t member_;
  Backend* const backend_;
  Collective* const host_;
  const size_t most_scratch_;
  std::unique_ptr<Buffer> parts_;  // of all ranks
};

}  // namespace nacre::kernels

#endif  // KERNELS_NCCL_COLLECTIVE_H_
