// A NCCL, and the streams it works on, without a GPU: as kernels/nccl_api.h
// says, with a thread for each stream, so that nothing is through when a call
// returns. A send ends when its receive has it. What takes or frees memory
// waits for all that its device has to do. What is not allowed fails the test:
// a call on a busy communicator, from a thread that is not bound, or with
// memory of the wrong kind.
//
// It fails when asked to. Thread-safe; outlives the objects that it opens.

#ifndef TESTS_WORKER_TENSORS_NCCL_STAND_IN_H_
#define TESTS_WORKER_TENSORS_NCCL_STAND_IN_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/nccl_api.h"

namespace nacre::worker {

class NcclStandIn {
 public:
  NcclStandIn() = default;
  // Everything was freed, or the test fails.
  ~NcclStandIn();

  // A device of its own.
  std::unique_ptr<kernels::NcclApi> Open(std::string version = "2.28.9");

  // While it holds, no rank joins and no receive ends.
  void HoldJoins(bool hold) ABSL_LOCKS_EXCLUDED(mu_);
  void HoldTransfers(bool hold) ABSL_LOCKS_EXCLUDED(mu_);
  // The transfer with that index, counted from 0 over all pairs, never arrives.
  void LoseTransfer(int index) ABSL_LOCKS_EXCLUDED(mu_);
  // It and the next one arrive in each other's place.
  void SwapTransfer(int index) ABSL_LOCKS_EXCLUDED(mu_);
  // All communicators of that rank report an error from now on.
  void FailRank(int rank, const absl::Status& error) ABSL_LOCKS_EXCLUDED(mu_);
  // The call with that index, counted from 0 and of those that can fail, does.
  void FailCall(int index) ABSL_LOCKS_EXCLUDED(mu_);

  int num_transfers() const ABSL_LOCKS_EXCLUDED(mu_);  // that were begun
  int num_aborts() const ABSL_LOCKS_EXCLUDED(mu_);
  int num_calls() const ABSL_LOCKS_EXCLUDED(mu_);  // that can fail
  // Communicators, streams, events and memory that there are.
  int num_objects() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Api;
  struct Comm;
  class Device;
  class Stream;
  // The transfers of one id.
  struct Pair {
    bool joined[2] = {false, false};
    std::deque<std::vector<char>> wire;
    int num_received = 0;
    int num_sent = 0;
    std::vector<char> kept_back;  // of a swap
  };

  absl::Status Call() ABSL_LOCKS_EXCLUDED(mu_);
  void CountObjects(int change) ABSL_LOCKS_EXCLUDED(mu_);
  void RunSend(Comm* comm, const char* data, size_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  void RunReceive(Comm* comm, char* data, size_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  bool holds_joins_ ABSL_GUARDED_BY(mu_) = false;
  bool holds_transfers_ ABSL_GUARDED_BY(mu_) = false;
  int lost_ ABSL_GUARDED_BY(mu_) = -1;
  int swapped_ ABSL_GUARDED_BY(mu_) = -1;
  int failing_call_ ABSL_GUARDED_BY(mu_) = -1;
  absl::Status errors_[2] ABSL_GUARDED_BY(mu_);
  int num_transfers_ ABSL_GUARDED_BY(mu_) = 0;
  int num_aborts_ ABSL_GUARDED_BY(mu_) = 0;
  int num_calls_ ABSL_GUARDED_BY(mu_) = 0;
  int num_objects_ ABSL_GUARDED_BY(mu_) = 0;
  int num_ids_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Pair> pairs_ ABSL_GUARDED_BY(mu_);  // by id
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_TENSORS_NCCL_STAND_IN_H_
