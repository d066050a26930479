// Which of the target's hidden states a draft's session can use. It is the one
// at the last position that the target has processed of what is committed here.
// A state may come before its commit, which takes the way over the coordinator:
// it is kept for it. What is older is of no use.
//
// Pure. Owned by the session, used by the engine's thread.

#ifndef DRAFT_WORKER_HIDDEN_STATES_H_
#define DRAFT_WORKER_HIDDEN_STATES_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

class HiddenStates {
 public:
  // Times are the engine's clock, which the states' arrivals are on, too.
  HiddenStates(uint64_t channel, uint32_t epoch, int committed_length,
               int64_t now_ns);

  uint64_t channel() const { return channel_; }

  enum class Outcome {
    kCurrent,  // current() is new
    kEarly,    // kept for a commit to come
    kStale,    // dropped
  };
  Outcome OnArrived(worker::ReceivedTensor received);

  // The session has applied a commit. Whether what belongs to it is there:
  // current() is new. Else there is no current one; a kept one that it has
  // overtaken is dropped.
  bool OnCommit(int committed_length, int64_t now_ns);

  // What the policy reads, and from when to when it was missing: from the
  // commit to its arrival, no time if it came first.
  struct State {
    worker::Tensor tensor;
    int64_t start_ns = 0;
    int64_t duration_ns = 0;
  };
  const State& current() const { return current_; }

  // Dropped ones so far.
  int64_t num_stale() const { return num_stale_; }

 private:
  // Where the logits of the last committed token come from.
  int position() const { return committed_length_ - 2; }
  void MakeCurrent(worker::ReceivedTensor received);

  uint64_t channel_;
  uint32_t epoch_;
  int committed_length_;
  int64_t committed_ns_;
  State current_;
  absl::optional<worker::ReceivedTensor> early_;  // the newest
  int64_t num_stale_ = 0;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_HIDDEN_STATES_H_
