// The ranks of a NCCL communicator that are threads of this process. They end
// together: a rank whose call fails, that NCCL reports an error of, or that
// waits too long for the others, aborts the communicators of all. Then what
// they have on their devices ends, and all waits for it.
//
// No call waits for a device. Ranks of other processes are ended over the link
// of the nodes by whoever owns them. Else they notice an abort by NCCL's own
// error, or by the limit.
//
// Thread-safe; the methods of one member: its rank's thread alone. A thread of
// its own watches the communicators.

#ifndef KERNELS_NCCL_GROUP_H_
#define KERNELS_NCCL_GROUP_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/nccl_api.h"
#include "kernels/node_link.h"

namespace nacre::kernels {

struct NcclGroupOptions {
  // Most that ranks wait for each other, to join and in a call.
  std::chrono::milliseconds limit = std::chrono::seconds(60);
  // How often the watch looks.
  std::chrono::milliseconds watch = std::chrono::milliseconds(10);
  // Of a model on several nodes, whose failure ends all ranks; null: it is on
  // one. Outlives the group.
  const NodeLink* nodes = nullptr;
};

class NcclGroup {
 public:
  // A rank of this process. `api` is of its device.
  struct Rank {
    int rank = 0;
    std::unique_ptr<NcclCollectiveApi> api;
  };

  // Joins `own` of `ranks` ranks, who have the same `id` (GetUniqueId of one of
  // them); returns when all of all processes have joined. Errors of NCCL, which
  // name the rank; DEADLINE_EXCEEDED; the nodes' failure.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Join(
      const std::string& id, int ranks, std::vector<Rank> own,
      const NcclGroupOptions& options = {});
  // Nothing of it is on a device that is not aborted by this.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int ranks() const { return ranks_; }
  // Of a member, by its index in `own`.
  int rank(size_t member) const { return members_[member]->rank; }

  // Has `call` queue on `stream`, and returns when it is there: what is queued
  // there next comes after it. The first failure of any rank.
  using Call =
      absl::FunctionRef<absl::Status(NcclCollectiveApi&, NcclApi::Comm)>;
  absl::Status Queue(size_t member, NcclApi::Stream stream, Call call)
      ABSL_LOCKS_EXCLUDED(mu_);

  // What a rank has failed with; OK: none has.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all ranks with `reason`, which is not OK; of several the first.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    int rank = 0;
    std::unique_ptr<NcclCollectiveApi> api;
    absl::Mutex mu;  // of calls of the communicator
    NcclApi::Comm comm ABSL_GUARDED_BY(mu) = nullptr;  // null: aborted
    // After the last call, and when that was queued; none: it has ended.
    NcclApi::Event event ABSL_GUARDED_BY(mu) = nullptr;
    absl::optional<Clock::time_point> queued ABSL_GUARDED_BY(mu);
  };

  NcclGroup(int ranks, const NcclGroupOptions& options)
      : ranks_(ranks), options_(options) {}

  absl::Status Begin(const std::string& id, Rank own);
  absl::Status Start(Member* member, Call call);
  // Waits until the communicator has done what it was called for.
  absl::Status WaitUntilIdle(Member* member, const char* what);
  absl::Status Mark(Member* member, NcclApi::Stream stream);
  // `status`, and the end of all ranks unless it is OK.
  absl::Status Checked(const Member& member, const absl::Status& status);
  // Ends all ranks if the nodes have failed.
  absl::Status CheckNodes();
  void Watch();
  absl::Status Look(Member* member);

  const int ranks_;
  const NcclGroupOptions options_;
  std::vector<std::unique_ptr<Member>> members_;
  std::atomic<bool> has_failed_ = false;
  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watch_;  // not running before all have joined
};

}  // namespace nacre::kernels

#endif  // KERNELS_NCCL_GROUP_H_
