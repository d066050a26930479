// The ranks of a NCCL communicator that are threads of this process. They end
// together: a rank whose call fails, that NCCL reports an error of, or that
// waits too long for the others, aborts the communicators of all. Then what
// they have on their devices ends, and all waits for it.
//
// No call waits for a device. Ranks of other processes are ended over the link
// of the nodes by whoever owns them. Else they notice an abort by NCCL's own
// error, or by the limit. Of ranks that wait too long the reason says in which
// call, and for whom (rank_progress.h). Of several nodes node 0 says it. The
// others tell it where they are, and wait a quarter longer.
//
// Thread-safe; the methods of one member: its rank's thread alone. A thread of
// its own watches the communicators.

#ifndef KERNELS_NCCL_GROUP_H_
#define KERNELS_NCCL_GROUP_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include "kernels/rank_progress.h"

namespace nacre::kernels {

struct NcclGroupOptions {
  // Most that ranks wait for each other, to join and in a call.
  std::chrono::milliseconds limit = std::chrono::seconds(60);
  // How often the watch looks.
  std::chrono::milliseconds watch = std::chrono::milliseconds(10);
  // Of a model on several nodes, whose failure ends all ranks; null: it is on
  // one. Outlives the group.
  NodeLink* nodes = nullptr;
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
  // What it is, for those that wait in it.
  struct What {
    const char* name = "";  // a constant: "an all-gather"
    size_t bytes = 0;       // of a rank
  };
  absl::Status Queue(size_t member, What what, NcclApi::Stream stream,
                     Call call) ABSL_LOCKS_EXCLUDED(mu_);

  // What a rank has failed with; OK: none has.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all ranks with `reason`, which is not OK; of several the first.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Clock = std::chrono::steady_clock;
  // Of the last calls so many are told apart: more than a step has (70B on 8
  // ranks: 640 for 512 rows).
  static constexpr size_t kMarks = 1024;
  // A call, and what is recorded after it.
  struct CallMark {
    NcclApi::Event event = nullptr;
    What what;
  };
  struct Member {
    int rank = 0;
    std::unique_ptr<NcclCollectiveApi> api;
    absl::Mutex mu;  // of calls of the communicator
    NcclApi::Comm comm ABSL_GUARDED_BY(mu) = nullptr;  // null: aborted
    // Call i, from 0, has marks[i % kMarks]. Events never change; they are
    // recorded without the mutex.
    std::array<CallMark, kMarks> marks ABSL_GUARDED_BY(mu);
    uint64_t called ABSL_GUARDED_BY(mu) = 0;
    uint64_t marked ABSL_GUARDED_BY(mu) = 0;  // of them, their event recorded
    // When the last one was made; none: it has ended.
    absl::optional<Clock::time_point> since ABSL_GUARDED_BY(mu);
  };

  NcclGroup(int ranks, const NcclGroupOptions& options)
      : ranks_(ranks), options_(options) {}

  absl::Status Begin(const std::string& id, Rank own);
  absl::Status Start(Member* member, What what, Call call);
  // Waits until the communicator has done what it was called for.
  absl::Status WaitUntilIdle(Member* member, const char* what,
                             std::chrono::milliseconds limit);
  absl::Status Mark(Member* member, NcclApi::Stream stream);
  // `status`, and the end of all ranks unless it is OK.
  absl::Status Checked(const Member& member, const absl::Status& status);
  // Ends all ranks if the nodes have failed.
  absl::Status CheckNodes();
  void Watch();
  // Of a rank and its communicator; whether it waits.
  absl::Status Look(Member* member);
  absl::StatusOr<RankProgress> ProgressOf(Member* member);
  // Of this node and, where it is the first, of all.
  absl::StatusOr<std::vector<NodeProgress>> AllProgress();
  // Says where this node is, or looks whether a rank hangs anywhere.
  absl::Status LookForHangs();

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
